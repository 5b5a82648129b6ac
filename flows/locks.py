"""Who works where: a lock that goes with its process, and beside it a note of whose it is."""

import contextlib
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil

from harr.errors import InUse
from harr.files import read_json, write_json

LOCKS = Path(".harr/locks")


@contextlib.contextmanager
def alone(stage: str) -> Iterator[None]:
    """Run a stage in this folder, unless another process does: two would write the same files.

    Raises:
        InUse: says which process has the lock, and since when.
    """
    LOCKS.mkdir(parents=True, exist_ok=True)
    with (LOCKS / f"{stage}.lock").open("a") as lock, noted(lock, LOCKS / f"{stage}.json") as owner:
        if owner:
            raise InUse(f"stage {stage} in {Path().resolve()} is locked by {owner}; wait for its end, or stop it")
        yield


@contextlib.contextmanager
def noted(lock: int | IO[str], note: Path) -> Iterator[str]:
    """Try for a lock and note this process as its owner for the length of the block; yields who has it instead, or "".

    The system gives the lock back when its process ends, however it ends: a note alone means nothing.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield owner(note)
        return
    write_json(note, {"pid": os.getpid(), "host": platform.node(), "since": psutil.Process().create_time()})
    try:
        yield ""
    finally:
        note.unlink(missing_ok=True)


def owner(note: Path) -> str:
    """The process of a note in a person's words.

    >>> owner(Path("nowhere.json"))
    'a process that has just begun'
    """
    try:
        told = read_json(note)
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(told["since"]))
        here = told["host"] == platform.node()
        state = "alive" if here and psutil.pid_exists(told["pid"]) else "of another machine or container"
        return f"pid {told['pid']} on {told['host']} since {since} ({state})"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has just begun"
