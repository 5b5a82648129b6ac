"""How a command ends on SIGINT or SIGTERM: after the current shard, batch or step, at most 4 s later."""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from harr.io import progress
from tasks.runtime.launch import is_main_process, process_count

FINISH_SECONDS = 4.0
"""Time that a stopped stage may take to finish its shard, batch or step."""
LEAVE_SECONDS = 4.0
"""Time that a stopped process may take to exit after its work: a thread may wait for a hanging server."""
LOOK_SECONDS = 1.0
"""How often a stage checks that the DVC that started it still runs."""
RUNNER = "HARR_RUNNER"
"""Environment variable: the PID of the process that started DVC (flows/reproduce.py)."""


class _Left:
    """Whether this process has printed that it was stopped."""

    reported = False


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """Handle SIGINT and SIGTERM with our own handlers during the block.

    The interpreter's would exit in the middle of a step.
    """
    before = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def end_soon() -> Iterator[None]:
    """Let the process exit soon after the block, without a last garbage collection."""
    try:
        yield
    finally:
        gc.freeze()  # saves a last pass over all of torch: up to 2 s


def follow() -> None:
    """Stop this stage as SIGTERM does once the DVC that started it, or what started DVC, is gone: nobody would record
    its outputs.

    Without DVC, which names its stage in the environment, there is nothing to follow.
    """
    above = psutil.Process().parents() if "DVC_STAGE" in os.environ else []
    leaders = {"dvc": next((process for process in above if _is_dvc(process)), None)}
    if number := os.environ.get(RUNNER, ""):
        leaders["runner"] = next((process for process in above if str(process.pid) == number), None)
    if leaders["dvc"]:
        threading.Thread(target=_follow, args=(leaders,), name="follow", daemon=True).start()


def _follow(leaders: Mapping[str, psutil.Process | None]) -> None:
    while all(leader and _lives(leader) for leader in leaders.values()):
        time.sleep(LOOK_SECONDS)
    if not progress.should_stop():  # the same signal may have arrived here; a second one would end the stage at once
        gone = next(name for name, leader in leaders.items() if not (leader and _lives(leader)))
        _tell(f"the {gone} that started this stage is gone")
        os.kill(os.getpid(), signal.SIGTERM)


def _is_dvc(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(Path(word).stem == "dvc" for word in process.cmdline()[:4])
    return False


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _stop(number: int, frame: object) -> None:
    """Exit after the current shard, batch or step; at once if it takes too long, or on a second signal."""
    alone = process_count() == 1  # the others might wait for this one for ever
    if progress.ask_to_stop(lambda: _leave(number)) and alone:
        signal.signal(signal.SIGALRM, lambda *_: _leave(number))
        signal.setitimer(signal.ITIMER_REAL, FINISH_SECONDS)
        _tell("finishing what is in work; again to stop at once")
    else:
        _leave(number)


def _leave(number: int) -> None:
    signal.signal(signal.SIGALRM, lambda *_: _end(number))
    signal.setitimer(signal.ITIMER_REAL, LEAVE_SECONDS)
    if is_main_process() and not _Left.reported:
        _Left.reported = True
        _tell("stopped; finished work is kept, run the same command again to go on")
    sys.exit(128 + number)


def _end(number: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(128 + number)


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # the reader may be gone
        print(line, file=sys.stderr)
