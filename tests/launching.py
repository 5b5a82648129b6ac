"""Two processes of a test's own script, started as `accelerate launch` does."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from runs import timeless

from harr.io.files import read_json, write_json

ROOT = Path(__file__).parents[1]


def launch(*words: str, config: str = "multi_gpu") -> subprocess.CompletedProcess[str]:
    """Run a script or module as two processes, with a configuration that we ship."""
    recipe = f"{ROOT}/recipes/accelerate/{config}.yaml"
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", recipe, *words]
    own = {
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "PREFECT_API_URL": "http://127.0.0.1:9/api",
    }
    return subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, timeout=400, check=False)


def leave_history(out: Path, rows: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """Write this process's results to ``out``."""
    for name, value in {"history": rows, **more}.items():
        write_json(out / f"{name}-{os.environ.get('RANK', 'alone')}.json", value)


def history(out: Path, rank: str) -> list[dict[str, Any]]:
    """Return a process's history from ``out``: one row per step, without times."""
    rows = timeless(read_json(out / f"history-{rank}.json"))
    return [{k: timeless([v])[0] if isinstance(v, dict) else v for k, v in row.items()} for row in rows]


def killed_hard_at(kill_at: int) -> Callable[[int, Mapping[str, Any]], None]:
    """Return a log that kills its process after a step, without a word."""

    def log(step: int, values: Mapping[str, Any]) -> None:
        if step == kill_at and "reward_mean" in values:  # a step's own figures, not those of the validation before it
            os.kill(os.getpid(), signal.SIGKILL)

    return log


def check_alike(
    found: Sequence[dict[str, Any]], wanted: Sequence[dict[str, Any]], loosely: Sequence[str] = (), apart: float = 1e-5
) -> None:
    """Check for the same episodes bit for bit, and the same figures up to the order of sums."""
    for row, expected in zip(found, wanted, strict=True):
        for name in ("quantiles", "faults", "reward_mean", *({"own_tokens"} & row.keys())):
            assert row.pop(name) == expected.pop(name), name
        for name in {"validation", "validation_before"} & row.keys():
            assert row.pop(name) == pytest.approx(expected.pop(name), rel=1e-3)
        for name in loosely:
            assert row.pop(name) == pytest.approx(expected.pop(name), rel=0.1)
        assert row == pytest.approx(expected, rel=1e-3, abs=apart)
