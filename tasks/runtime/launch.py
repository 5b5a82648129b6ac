"""The processes of `accelerate launch`: all of them compute; the main one talks to Prefect, MLflow and the user."""

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from harr.errors import HarrError, ParamsError

LEAD_SECONDS = 20.0
"""Seconds that a further process delays its error, so that the main one can print the same error first."""


def process_count() -> int:
    """Return how many processes were launched; 1 if the variable is not a number, which a stage refuses."""
    count = os.environ.get("WORLD_SIZE", "1")
    return int(count) if count.isdecimal() else 1


def launch(stage: str, count: int) -> None:
    """Run a stage in ``count`` processes, a GPU each; if it fails, exit as `accelerate launch` does."""
    own = ["--multi_gpu", "--num_processes", str(count), "--num_machines", "1", "--main_process_port", "0"]
    same = ["--mixed_precision", "no", "--dynamo_backend", "no"]  # its own defaults, without the warning
    command = [sys.executable, "-m", "accelerate.commands.launch", *own, *same, "-m", f"tasks.{stage}"]
    if code := subprocess.call(command):
        sys.exit(code)


def is_main_process() -> bool:
    """Return whether this is the main process, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def joins_main_process(join: Callable[[Any], Any] | None) -> bool:
    """Return whether this process only does the plain work ``join`` alongside the main one.

    Raises:
        ParamsError: the variables are not as `accelerate launch` sets them.
    """
    for name in ("WORLD_SIZE", "RANK"):
        if not (value := os.environ.get(name, "1")).isdecimal():
            raise ParamsError(f"{name} is {value!r}; expected a number, as `accelerate launch` sets it; or unset it")
    return process_count() > 1 and (join is None or not is_main_process())


def join_main_process(stage: str, join: Callable[[Any], Any] | None) -> None:
    """Do the plain work ``join`` of a stage alongside the main process.

    Raises:
        ParamsError: the stage runs in one process only (``join`` is None).
    """
    from harr.params import Params

    try:
        if join is None:
            raise ParamsError(f"stage {stage} runs in one process: `python -m tasks.{stage}`")
        with contextlib.redirect_stdout(io.StringIO()):  # the main one prints it
            join(Params.load())
    except HarrError:
        time.sleep(0 if is_main_process() else LEAD_SECONDS)
        raise
