"""Methods by name: ``train(params, setup, out, work, log, seed)`` returns one row per step."""

from collections.abc import Callable
from typing import Any

from harr.train import grpo, infonce, ppo, pqn

METHODS: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "grpo": grpo.train,
    "ppo": ppo.train,
    "pqn": pqn.train,
    "infonce": infonce.train,
}
