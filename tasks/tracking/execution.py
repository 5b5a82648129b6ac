"""The process that a pipeline execution belongs to, which all its stage processes have in common."""

import contextlib
import os
import platform
import re
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from harr.errors import ParamsError
from harr.io.files import fingerprint, read_json, write_json
from tasks.paths import RUNS as RECIPES, STATE

RUNS = {("harr", "run"), ("flows.cli", "run")}
OWNERS = STATE / "owners"
"""A folder with a file per process that owns a run: its ``identity``, and the name of the execution."""
CLOCK_SECONDS = 5.0
"""The largest error of a start time that was noted by the clock."""


def owner() -> psutil.Process:
    """Return the outermost ancestor that is dvc or `harr run`; without one, this process."""
    here = psutil.Process()
    runners = [process for process in here.parents() if _is_runner(process)]
    return runners[-1] if runners else here


def me() -> str:
    """Return this process in a person's words: host and pid."""
    return f"{platform.node()}, pid {os.getpid()}"


def boot() -> str:
    """Return the name that the system gave itself when it started; "" where it has none (macOS)."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def machine() -> str:
    """Hash this boot of the machine and the container in it: within them a process number means one process."""
    name = platform.node()
    with contextlib.suppress(OSError):  # no Linux, hence no containers either
        name = f"{boot()}\n{os.readlink('/proc/self/ns/pid')}" if boot() else name
    return fingerprint(name)[:8]


def execution_id() -> str:
    """Return the name of this pipeline execution; the environment variable HARR_EXECUTION overrides it.

    Raises:
        ParamsError: the variable holds what cannot stand in a question to MLflow.
    """
    name = os.environ.get("HARR_EXECUTION") or str(claim()["id"])
    if re.search(r"[^\w .:/@+=-]", name):
        raise ParamsError(f"HARR_EXECUTION is {name!r}; expected letters, digits, blanks and any of . : / @ + = _ -")
    return name


def recipe_here() -> str:
    """Return the recipe that runs in this folder: the name of its folder in .harr/runs, or params.yaml."""
    here = Path.cwd()
    return here.name if here.parts[-3:-1] == RECIPES.parts else "params.yaml"


def claim() -> dict[str, Any]:
    """Return the owner of this process as ``{pid, started, born, id}``; it is noted on disk the first time."""
    process = owner()
    for note in live_owners():
        if note["pid"] == process.pid:
            return note
    note = identity(process.pid)
    note["id"] = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(note['started']))}-{process.pid}"
    write_json(OWNERS / f"{process.pid}.json", note)
    return note


def live_owners() -> list[dict[str, Any]]:
    """Return the owners that still run, and forget the others."""
    alive = []
    remove_partial_files(OWNERS)
    for path in sorted(OWNERS.glob("*.json")):
        with contextlib.suppress(OSError, ValueError):  # another process has just forgotten it
            note = read_json(path)
            if _is_note(note) and is_alive(note):
                alive.append(note)
            else:
                path.unlink(missing_ok=True)
    return alive


def _is_note(value: Any) -> bool:
    """Return whether a file holds what ``claim`` writes, or wrote before there was ``born``."""
    kinds = {"pid": int, "started": int | float, "id": str}
    return isinstance(value, dict) and all(isinstance(value.get(key), kind) for key, kind in kinds.items())


def remove_partial_files(folder: Path) -> None:
    """Remove the temporary files that processes which are gone left: those of notes named ``<anything-><pid>.json``."""
    for path in folder.glob(".*.json.tmp"):
        pid = re.search(r"(\d+)\.json\.tmp$", path.name)
        if pid and not psutil.pid_exists(int(pid[1])):
            path.unlink(missing_ok=True)


def identity(pid: int | None = None) -> dict[str, Any]:
    """Return what tells a process (without ``pid``, this one) from a later one of the same number.

    ``started``: s since 1970, which moves with the clock of the machine. ``born``: the boot and the clock ticks
    since then, which do not; "" where the system does not tell.

    >>> sorted(identity()), identity()["pid"] == os.getpid()
    (['born', 'pid', 'started'], True)
    """
    process = psutil.Process(pid)
    return {"pid": process.pid, "started": process.create_time(), "born": _born(process.pid)}


def is_alive(noted: Mapping[str, Any]) -> bool:
    """Return whether the process of an ``identity`` lives and is no later one with the same number.

    A note without ``born`` is compared by the clock, which may have been set by less than 5 s.
    """
    try:
        process = psutil.Process(noted["pid"])
        return bool(process.status() != psutil.STATUS_ZOMBIE and _is_same(process, noted))
    except psutil.NoSuchProcess:
        return False


def _is_same(process: psutil.Process, noted: Mapping[str, Any]) -> bool:
    if (then := noted.get("born")) and (born := _born(process.pid)):
        return bool(born == then)
    return bool(abs(process.create_time() - float(noted["started"])) < CLOCK_SECONDS)


def _born(pid: int) -> str:
    with contextlib.suppress(OSError):
        ticks = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19]  # field 22: after the name
        return f"{boot()} {int(ticks)}" if boot() else ""
    return ""


def _is_runner(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        names = [Path(word).name for word in process.cmdline()[:5]]
        return "dvc" in names[:4] or not RUNS.isdisjoint(pairwise(names))
    return False
