"""Methods by name: ``train(params, setup, out, work, log, seed)`` returns one row per step."""

from collections.abc import Callable
from typing import Any

from harr.train import grpo, infonce, ppo, pqn


def _agent(*args: Any) -> list[dict[str, Any]]:
    from harr.train.agent import train  # TRL takes seconds to import, and only this method needs it

    return train(*args)


def _leret(*args: Any) -> list[dict[str, Any]]:
    from harr.train.leret import train  # likewise

    return train(*args)


METHODS: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "agent": _agent,
    "grpo": grpo.train,
    "leret": _leret,
    "ppo": ppo.train,
    "pqn": pqn.train,
    "infonce": infonce.train,
}
