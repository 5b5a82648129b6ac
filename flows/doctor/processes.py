"""Processes of this project: what runs, who owns it, who holds a lock or a port."""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from flows.doctor.finding import Finding, ok, warn
from harr.errors import DamagedFile
from harr.io.files import read_state
from tasks.tracking.execution import is_alive

PROGRAMS = ("dvc", "prefect", "mlflow", "milvus-lite", "prefect.engine")


@dataclass(frozen=True)
class Process:
    """A process of this project: ``name`` is its module or program with the sub-command.

    ``execution`` names the execution that it belongs to, if its environment does; ``recipe`` the recipe in whose folder
    it runs, empty in the project's own.
    """

    pid: int
    started: float
    name: str
    execution: str = ""
    recipe: str = ""


def scan(root: Path) -> tuple[Process, ...]:
    """Return the processes of the pipeline in ``root``, or in a recipe's folder there, the oldest first."""
    here, ours = root.resolve(), []
    for process in psutil.process_iter(["cmdline", "create_time", "cwd", "environ", "status"]):
        seen = process.info
        name, place = called(seen["cmdline"] or ()), Path(seen["cwd"] or "/")
        if not name or process.pid == os.getpid() or seen["status"] == psutil.STATUS_ZOMBIE:
            continue
        if place == here or place.parent == here / ".harr/runs":
            execution = (seen["environ"] or {}).get("HARR_EXECUTION", "")
            recipe = "" if place == here else place.name
            ours.append(Process(process.pid, seen["create_time"], name, execution, recipe))
    return tuple(sorted(ours, key=lambda one: one.started))


def called(command: Iterable[str]) -> str:
    """Return the name of a process of the pipeline, or "".

    >>> called(["python", "-m", "tasks.train"]), called(["python", "/venv/bin/dvc", "repro", "-s"])
    ('tasks.train', 'dvc repro')
    >>> called(["python", "-m", "prefect", "server", "start"]), called(["vim", "flows.txt"])
    ('prefect server start', '')
    >>> called(["python", "/venv/bin/harr", "run", "--promote"]), called(["python", "-m", "flows.cli", "status"])
    ('harr run', '')
    """
    words = list(command)
    if not words or Path(words[0]).name in ("sh", "bash", "dash"):
        return ""
    for place, word in enumerate(words[:4]):
        name = Path(word).name
        if name in ("harr", "flows.cli"):
            rest = words[place + 1 : place + 2]
            return f"harr {rest[0]}" if rest and rest[0] not in ("doctor", "status") else ""
        if name.startswith("tasks.") and place and words[place - 1] == "-m":
            return name
        if name in PROGRAMS:
            rest = [part for part in words[place + 1 : place + 3] if part.isalpha()]
            return " ".join([name, *rest])
    return ""


def owners(root: Path) -> list[dict[str, Any]]:
    """Return the owner files of .harr as they stand, dead or alive; nothing is forgotten here."""
    found = []
    for path in sorted((root / ".harr/owners").glob("*.json")):
        with contextlib.suppress(DamagedFile):
            found.append(read_state(path, "", pid=int, started=float, id=str))
    return found


def live_executions(processes: Iterable[Process], root: Path) -> set[str]:
    """Return the names of the executions that a living process belongs to."""
    named = {one.execution for one in processes} - {""}
    return named | {one["id"] for one in owners(root) if is_alive(one)}


def check_milvus_lock(processes: Iterable[Process], root: Path) -> list[Finding]:
    """Tell who has a Milvus Lite folder open; the file LOCK stays for good and says nothing by itself."""
    known, findings = {one.pid: one.name for one in processes}, []
    for path in [*root.glob("data/index/milvus.db/LOCK"), *root.glob("work/index/*/out/milvus.db/LOCK")]:
        place = path.parent.relative_to(root)
        for pid in with_open(path):
            if pid in known:
                findings.append(ok("index lock", f"{place} is open in {known[pid]} (pid {pid})"))
            else:
                what = f"{place} is held by {_named(pid)}; stages cannot open it"
                findings.append(warn("index lock", what, f"kill {pid}"))
    return findings


def with_open(path: Path) -> list[int]:
    """Return the numbers of the processes that have a file open, as far as we may look; looking takes no lock."""
    target, found = str(path.resolve()), []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found += [process.pid] if any(file.path == target for file in process.open_files()) else []
    return found


def _command(pid: int | None) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).cmdline() if pid else []
    return []


def _named(pid: int | None) -> str:
    return f"{' '.join(_command(pid))[:60] or 'a kernel thread'} (pid {pid})" if pid else "another user's process"
