"""`dvc repro` as our process: its lines are read as they come, and it ends with its stage when we are stopped."""

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
"""Seconds that a stopped stage may take to finish its shard or step before it is killed."""

BEFORE_TRAINING = ("inputs", "download", "embed", "index", "generator")
"""Stages that an untrained arm needs."""


class StageFailed(HarrError, RuntimeError):
    """`dvc repro` ended with an error, which it has printed."""


def reproduce(stages: Sequence[str], place: Path, execution: str, say: Callable[[str], object] | None = None) -> None:
    """Bring stages up to date, each alone, or all if none is named; DVC decides what has to run.

    If this process is stopped, so are DVC and its stage; if it is killed, the stage stops by itself
    (``tasks.runtime.signals.follow``).

    Args:
        stages: names in dvc.yaml.
        place: the project's folder, or a recipe's.
        execution: the name under which MLflow keeps their runs together; "" derives one from this process.
        say: called with every line that they print; None: they print themselves.

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
        errors="replace",  # a library may print what is no UTF-8
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
    """Return DVC's environment: this Python first on PATH, since dvc.yaml says `python`, and one MLflow store."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT__")}
    path = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    extra = {"HARR_EXECUTION": execution} if execution else {}
    return {**env, "PATH": path, **store_variables(), "PYTHONUNBUFFERED": "1", RUNNER: str(os.getpid()), **extra}


def _stop(process: "subprocess.Popen[str]") -> None:
    """Stop DVC and its stage by SIGINT, on which DVC waits for its stage and releases its locks, then by SIGKILL."""
    with contextlib.suppress(ProcessLookupError):  # all ended by themselves
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)


def mend_lock(place: Path = Path()) -> None:
    """Repair DVC's lock file, which a kill can leave empty; every later command would fail on it."""
    lock = place / ".dvc/tmp/rwlock"
    if lock.exists() and not lock.read_text(encoding="utf-8").strip():
        lock.unlink()
