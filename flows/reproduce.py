"""`dvc repro` as a process of ours: its lines are read as they come, and it ends with its stage when we are stopped."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from flows.workspace import store_variables
from harr.errors import HarrError
from tasks.runtime.signals import RUNNER

STOP_SECONDS = 20.0
"""Seconds that a stopped stage may take to leave its shard or step; then it is killed."""

BEFORE_TRAINING = ("inputs", "download", "embed", "index", "generator")
"""The stages that an arm without training needs."""


class StageFailed(HarrError, RuntimeError):
    """`dvc repro` ended with an error, which it has printed."""


def reproduce(stages: Sequence[str], place: Path, execution: str, say: Callable[[str], object] | None = None) -> None:
    """Bring stages up to date, each alone, or all of them where none is named; DVC decides whether anything has to run.

    If this process is stopped, DVC is stopped with its stage, and a stage that works for a process that was killed
    stops by itself (``tasks.runtime.signals.follow``).

    Args:
        stages: names in dvc.yaml.
        place: the project's folder, or a recipe's.
        execution: the name under which MLflow keeps their runs together; "" for one that follows from this process.
        say: takes every line that they print; None: they print for themselves.

    Raises:
        StageFailed: says why, in the stage's last line.
    """
    mend_lock(place)
    words = ["--single-item", *stages] if stages else []
    command = [sys.executable, "-u", "-m", "dvc", "repro", *words]
    last = ""
    with subprocess.Popen(
        command,
        cwd=place,
        env=_environment(execution),
        start_new_session=True,
        stdout=subprocess.PIPE if say else None,
        stderr=subprocess.STDOUT if say else None,
        text=True,
    ) as process:
        try:
            for line in process.stdout or ():
                if say:
                    say(line.rstrip())
                last = line.strip() if line.startswith("error: ") or not last.startswith("error: ") else last
            code = process.wait()
        except BaseException:
            _stop(process)
            mend_lock(place)
            raise
    if code:
        label = f"stage {' '.join(stages)}" if stages else "a stage"
        why = last.removeprefix("error: ") if last.startswith("error: ") else f"exit {code}; its message is above"
        raise StageFailed(f"{label} failed: {why}; later stages did not run")


def _environment(execution: str) -> dict[str, str]:
    """Return the variables of DVC: this Python first on PATH, since dvc.yaml says `python`, and one store of MLflow."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT__")}
    path = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    extra = {"HARR_EXECUTION": execution} if execution else {}
    return {**env, "PATH": path, **store_variables(), "PYTHONUNBUFFERED": "1", RUNNER: str(os.getpid()), **extra}


def _stop(process: "subprocess.Popen[str]") -> None:
    """Stop DVC and its stage: by SIGINT, for which DVC waits for its stage and gives its locks back, then by SIGKILL."""
    with contextlib.suppress(ProcessLookupError):  # all of them have ended by themselves
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)


def mend_lock(place: Path = Path()) -> None:
    """Mend DVC's lock file, which a kill can leave empty, so that every later command would fail on it."""
    lock = place / ".dvc/tmp/rwlock"
    if lock.exists() and not lock.read_text(encoding="utf-8").strip():
        lock.unlink()
