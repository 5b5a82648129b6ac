"""Locks that end with their process, in files that name their owner."""

import contextlib
import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from harr.errors import InUse
from tasks.paths import STATE

LOCKS = STATE / "locks"


@contextlib.contextmanager
def lock_stage(stage: str) -> Iterator[None]:
    """Lock a stage in this folder, so that no two processes write the same files.

    Raises:
        InUse: says which process has the lock, and since when.
    """

    def busy(owner: str) -> None:
        raise InUse(f"stage {stage} in {Path().resolve()} is locked by {owner}; wait for its end, or stop it")

    with hold(LOCKS / stage, busy):
        yield


@contextlib.contextmanager
def hold(path: Path, busy: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock during the block; if another process has it, call ``busy`` with its owner, then wait.

    The system releases a lock when its process ends, however it ends; what is left in the file means nothing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy(owner(path))
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        note = {"pid": os.getpid(), "host": platform.node(), "since": psutil.Process().create_time()}
        try:
            os.write(file.fileno(), json.dumps(note).encode())
        except OSError as error:  # a full disk; the system does not name the file
            raise OSError(error.errno, error.strerror, str(path)) from None
        try:
            yield
        finally:
            file.truncate(0)


def owner(path: Path) -> str:
    """Return in words the process that a lock's file names.

    >>> owner(Path("nowhere"))
    'a process that has just begun'
    """
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(note["since"]))
        here = note["host"] == platform.node()
        state = ("alive" if psutil.pid_exists(note["pid"]) else "gone") if here else "of another machine or container"
        return f"pid {note['pid']} on {note['host']} since {since} ({state})"
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return "a process that has just begun"
