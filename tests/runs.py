"""What tests ask of a training: that it can be killed, resume, and end with the same weights and figures."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

TIMES = ("seconds", "play_seconds")


def killed_at(*steps: int) -> Callable[[int, Mapping[str, Any]], None]:
    """Return a log that kills the run once after each of these steps; validation's rows belong to no step."""
    left = list(steps)

    def log(step: int, values: Mapping[str, Any]) -> None:
        if step in left and not any(name.startswith("validation.") for name in values):
            left.remove(step)
            raise KeyboardInterrupt

    return log


def go_on(run: Callable[[Any], Any], *steps: int, then: Any = lambda step, values: None) -> Any:
    """Return the result of ``run(log)`` after kills at each of these steps."""
    log = killed_at(*steps)
    for _ in steps:
        with pytest.raises(KeyboardInterrupt):
            run(log)
    return run(then)


def timeless(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without what differs between runs."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return all weights below a folder; a checkpoint's get the names of an export."""
    return {
        f"{path.parent.relative_to(folder)}/{name.replace('.default.', '.')}": weight
        for path in sorted(folder.rglob("*.safetensors"))
        for name, weight in load_file(path).items()
    }


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    """Return whether the weights that both have are equal bit for bit; a checkpoint has only trained ones."""
    both = one.keys() & two.keys()
    return bool(both) and all(torch.equal(one[name], two[name]) for name in both)
