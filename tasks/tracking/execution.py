"""Which process a pipeline execution belongs to: what all its stage processes have in common."""

import contextlib
import os
import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from harr.errors import ParamsError
from harr.io.files import fingerprint, read_json, write_json

RUNNERS = ("dvc", "flows.pipeline")
OWNERS = Path(".harr/owners")
"""One file per process that owns a run: what tells it from others (``identity``), and the name of the execution."""
CLOCK_SECONDS = 5.0
"""A start time that was noted by the clock may be so far off."""


def owner() -> psutil.Process:
    """The outermost ancestor that is dvc or flows.pipeline; without one, this process."""
    here = psutil.Process()
    runners = [process for process in here.parents() if _is_runner(process)]
    return runners[-1] if runners else here


def me() -> str:
    """This process in a person's words: host and pid."""
    return f"{platform.node()}, pid {os.getpid()}"


def boot() -> str:
    """The name that the system gave itself when it started; "" where it has none (macOS)."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def machine() -> str:
    """Where a process number means this process: a hash of this boot of the machine, and of the container in it."""
    told = platform.node()
    with contextlib.suppress(OSError):  # no Linux, hence no containers either
        told = f"{boot()}\n{os.readlink('/proc/self/ns/pid')}" if boot() else told
    return fingerprint(told)[:8]


def execution_id() -> str:
    """Names one pipeline execution; the environment variable HARR_EXECUTION overrides it.

    Raises:
        ParamsError: the variable holds what cannot stand in a question to MLflow.
    """
    said = os.environ.get("HARR_EXECUTION") or str(claim()["id"])
    if re.search(r"[^\w .:/@+=-]", said):
        raise ParamsError(f"HARR_EXECUTION is {said!r}; expected letters, digits, blanks and any of . : / @ + = _ -")
    return said


def claim() -> dict[str, Any]:
    """The owner of this process as ``{pid, started, born, id}``; noted on disk the first time."""
    process = owner()
    for told in live_owners():
        if told["pid"] == process.pid:
            return told
    told = identity(process.pid)
    told["id"] = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(told['started']))}-{process.pid}"
    write_json(OWNERS / f"{process.pid}.json", told)
    return told


def own_too() -> None:
    """Own the run beside its owner (see ``claim``) until this process ends: DVC may die before the stage it started."""
    told = claim()
    if told["pid"] != os.getpid():
        write_json(OWNERS / f"{os.getpid()}.json", {**identity(), "id": told["id"]})


def live_owners() -> list[dict[str, Any]]:
    """Owners that still run; forgets the others."""
    alive = []
    sweep_stumps(OWNERS, ".json.tmp")
    for path in sorted(OWNERS.glob("*.json")):
        with contextlib.suppress(OSError, ValueError):  # another process has just forgotten it
            told = read_json(path)
            if _is_note(told) and runs_still(told):
                alive.append(told)
            else:
                path.unlink(missing_ok=True)
    return alive


def _is_note(told: Any) -> bool:
    """Whether a file holds what ``claim`` writes, or wrote before there was ``born``."""
    kinds = {"pid": int, "started": int | float, "id": str}
    return isinstance(told, dict) and all(isinstance(told.get(key), kind) for key, kind in kinds.items())


def sweep_stumps(folder: Path, ending: str) -> None:
    """Remove the temporary files ``.<pid><ending>`` of processes that are gone."""
    for path in folder.glob(f".*{ending}"):
        pid = path.name[1 : -len(ending)]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            path.unlink(missing_ok=True)


def identity(pid: int | None = None) -> dict[str, Any]:
    """What tells a process (without ``pid``, this one) from a later one of the same number.

    ``started``: s since 1970, which moves with the clock of the machine. ``born``: the boot and the clock ticks
    since then, which do not; "" where the system does not tell.

    >>> sorted(identity()), identity()["pid"] == os.getpid()
    (['born', 'pid', 'started'], True)
    """
    process = psutil.Process(pid)
    return {"pid": process.pid, "started": process.create_time(), "born": _born(process.pid)}


def runs_still(told: Mapping[str, Any]) -> bool:
    """True if the process of an ``identity`` lives and is no later one with the same number.

    A note without ``born`` is compared by the clock, which may have been set by less than 5 s.
    """
    try:
        process = psutil.Process(told["pid"])
        return bool(process.status() != psutil.STATUS_ZOMBIE and _compared(process, told) == 0)
    except psutil.NoSuchProcess:
        return False


def is_no_older(process: psutil.Process, told: Mapping[str, Any]) -> bool:
    """True if a process began with the one of an ``identity`` or after it, in the same boot."""
    return _compared(process, told) >= 0


def _compared(process: psutil.Process, told: Mapping[str, Any]) -> float:
    """How much later than told a process began; 0 if it is the same, -inf if they are of different boots."""
    if (noted := told.get("born")) and (born := _born(process.pid)):
        (one_boot, one), (other_boot, other) = born.split(), noted.split()
        return float(int(one) - int(other)) if one_boot == other_boot else -float("inf")
    apart = process.create_time() - float(told["started"])
    return 0.0 if abs(apart) < CLOCK_SECONDS else apart


def _born(pid: int) -> str:
    with contextlib.suppress(OSError):
        ticks = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19]  # field 22: after the name
        return f"{boot()} {int(ticks)}" if boot() else ""
    return ""


def _is_runner(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(Path(word).name in RUNNERS for word in process.cmdline()[:4])
    return False
