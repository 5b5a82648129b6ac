"""Two processes of a test's own script, as `accelerate launch` starts them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from harr.io.files import read_json

ROOT = Path(__file__).parents[1]


def launch(*words: str, config: str = "multi_gpu") -> subprocess.CompletedProcess[str]:
    """Two processes of a script or module, by a configuration that we ship."""
    command = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        f"{ROOT}/recipes/accelerate/{config}.yaml",
        *words,
    ]
    own = {
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "PREFECT_API_URL": "http://127.0.0.1:9/api",
    }
    return subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, timeout=400, check=False)


def history(out: Path, rank: str) -> list[dict[str, Any]]:
    """What a process left in ``out``: one row per step, without the time."""

    def timeless(values: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in values.items() if name not in ("seconds", "play_seconds")}
        return {name: timeless(value) if isinstance(value, dict) else value for name, value in kept.items()}

    return [timeless(row) for row in read_json(out / f"history-{rank}.json")]
