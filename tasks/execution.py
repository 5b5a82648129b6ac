"""Which process a pipeline execution belongs to: what all its stage processes have in common."""

import contextlib
import os
import platform
import time
from pathlib import Path
from typing import Any

import psutil

from harr.files import fingerprint, read_json, write_json

RUNNERS = ("dvc", "flows.pipeline")
OWNERS = Path(".harr/owners")
"""One file per process that owns a run: pid, start time, and the name of the execution."""


def owner() -> psutil.Process:
    """The outermost ancestor that is dvc or flows.pipeline; without one, this process."""
    here = psutil.Process()
    runners = [process for process in here.parents() if _is_runner(process)]
    return runners[-1] if runners else here


def me() -> str:
    """This process in a person's words: host and pid."""
    return f"{platform.node()}, pid {os.getpid()}"


def machine() -> str:
    """Where a process number means this process: a hash of this boot of the machine, and of the container in it."""
    try:
        told = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii") + os.readlink("/proc/self/ns/pid")
    except OSError:  # no Linux, hence no containers either
        told = platform.node()
    return fingerprint(told)[:8]


def execution_id() -> str:
    """Names one pipeline execution; the environment variable HARR_EXECUTION overrides it."""
    return os.environ.get("HARR_EXECUTION") or str(claim()["id"])


def claim() -> dict[str, Any]:
    """The owner of this process as ``{pid, started, id}``; noted on disk the first time."""
    process = owner()
    for told in live_owners():
        if told["pid"] == process.pid:
            return told
    started = process.create_time()
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(started))}-{process.pid}"
    told = {"pid": process.pid, "started": started, "id": name}
    write_json(OWNERS / f"{process.pid}.json", told)
    return told


def live_owners() -> list[dict[str, Any]]:
    """Owners that still run; forgets the others."""
    alive = []
    sweep_stumps(OWNERS, ".json.tmp")
    for path in sorted(OWNERS.glob("*.json")):
        with contextlib.suppress(OSError, ValueError):  # another process has just forgotten it
            told = read_json(path)
            if runs_still(told["pid"], told["started"]):
                alive.append(told)
            else:
                path.unlink(missing_ok=True)
    return alive


def sweep_stumps(folder: Path, ending: str) -> None:
    """Remove the temporary files ``.<pid><ending>`` of processes that are gone."""
    for path in folder.glob(f".*{ending}"):
        pid = path.name[1 : -len(ending)]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            path.unlink(missing_ok=True)


def runs_still(pid: int, started: float) -> bool:
    """True if the process lives and is no later one with the same number (clocks may jump a little)."""
    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - started) < 5)
    except psutil.NoSuchProcess:
        return False


def _is_runner(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(Path(word).name in RUNNERS for word in process.cmdline()[:4])
    return False
