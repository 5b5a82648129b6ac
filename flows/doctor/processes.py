"""Processes of this project: what runs, who owns it, who holds a lock or a port."""

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from flows.doctor.finding import Finding, fail, ok, warn
from harr.errors import DamagedFile
from harr.io.files import read_state
from tasks.tracking.execution import is_alive

PROGRAMS = ("dvc", "prefect", "mlflow", "milvus-lite", "prefect.engine")
RUNNERS = {"harr", "prefect.engine"}
"""What has DVC run a stage: a pipeline started by hand, and the process in which a worker runs a flow."""


@dataclass(frozen=True)
class Process:
    """A process of this project: ``name`` is its module or program with the sub-command.

    ``above`` names the programs of the pipeline that it descends from; ``recipe`` the recipe in whose folder it runs,
    empty in the project's own.
    """

    pid: int
    started: float
    name: str
    above: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
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
            wanted = {"DVC_STAGE", "HARR_EXECUTION", "HARR_PARENT_TASK_RUN"}
            known = {key: value for key, value in (seen["environ"] or {}).items() if key in wanted}
            recipe = "" if place == here else place.name
            ours.append(Process(process.pid, seen["create_time"], name, _above(process), known, recipe))
    return tuple(sorted(ours, key=lambda one: one.started))


def _above(process: psutil.Process) -> tuple[str, ...]:
    names: list[str] = []
    with contextlib.suppress(psutil.Error):
        for one in process.parents():
            names += called(one.cmdline()).split()[:1]
    return tuple(names)


def called(command: Iterable[str]) -> str:
    """Return the name of a process of the pipeline, or "".

    >>> called(["python", "-m", "flows.train"]), called(["python", "/venv/bin/dvc", "repro", "-s"])
    ('flows.train', 'dvc repro')
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
        if name.startswith("flows.") and place and words[place - 1] == "-m":
            return " ".join([name, *words[place + 1 : place + 2]]) if name == "flows.server" else name
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
    named = {one.environment["HARR_EXECUTION"] for one in processes if "HARR_EXECUTION" in one.environment}
    return named | {one["id"] for one in owners(root) if is_alive(one)}


def orphans(processes: Iterable[Process], root: Path) -> list[tuple[Process, str]]:
    """Return the processes that nobody waits for any more, each with the reason."""
    found, owned = [], any(map(is_alive, owners(root)))
    for one in processes:
        if one.name.startswith("flows.server"):
            if one.name.endswith("--supervise") and not owned and time.time() - one.started > 5:
                found.append((one, "no run owns its Prefect server"))
        elif one.name.startswith("flows.") and "DVC_STAGE" in one.environment and "dvc" not in one.above:
            found.append((one, f"its dvc repro of stage {one.environment['DVC_STAGE']} is gone"))
        elif one.name.startswith("dvc") and "HARR_PARENT_TASK_RUN" in one.environment:
            found += [(one, "its harr run is gone")] if RUNNERS.isdisjoint(one.above) else []
    return found


def check_orphans(processes: Iterable[Process], root: Path) -> list[Finding]:
    """Look for stages that run on after their `dvc repro` was killed: a second one would start beside them."""
    ours = list(processes)
    lost = orphans(ours, root)
    findings = [
        fail("orphan", f"{one.name} (pid {one.pid}) runs on; {why}", f"kill {one.pid}   (finished work is kept)")
        for one, why in lost
    ]
    others = len(ours) - len(lost)
    return findings or [ok("processes", f"{others} at work, no orphans" if others else "none at work, no orphans")]


def check_milvus_lock(processes: Iterable[Process], root: Path) -> list[Finding]:
    """Tell who has a Milvus Lite folder open; the file LOCK stays for good and says nothing by itself."""
    ours, findings = list(processes), []
    known, lost = {one.pid: one.name for one in ours}, {one.pid for one, _ in orphans(ours, root)}
    for path in [*root.glob("data/index/milvus.db/LOCK"), *root.glob("work/index/*/out/milvus.db/LOCK")]:
        place = path.parent.relative_to(root)
        for pid in with_open(path):
            if pid in known and pid not in lost:
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


def listeners() -> list[Any]:
    """Return the listening TCP sockets of this machine (psutil's ``sconn``); none where we may not look."""
    with contextlib.suppress(psutil.Error):
        return [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    return []


def check_ports(listening: Iterable[Any], serves: Mapping[int, str], known: Iterable[int]) -> list[Finding]:
    """Look for ports of `harr ui` that another program has, and for servers that the whole network can reach.

    Args:
        listening: what :func:`listeners` found.
        serves: port to the name of the program that `harr ui` starts there.
        known: ports of the servers that this project talks to.
    """
    findings = []
    for one in listening:
        host, port = one.laddr
        if port not in {*serves, *known}:
            continue
        if host in ("0.0.0.0", "::"):
            what = f"{port} is open to the network ({host}), held by {_named(one.pid)}"
            findings.append(warn("port", what, "restart it with --host 127.0.0.1"))
        if port in serves and not any(serves[port] in Path(word).name for word in _command(one.pid)):
            what = f"{port} is taken by {_named(one.pid)}; `harr ui` wants it for {serves[port]}"
            findings.append(warn("port", what, f"stop it{f' (kill {one.pid})' if one.pid else ''} before `harr ui`"))
    return findings or [ok("ports", f"{', '.join(map(str, sorted({*serves, *known})))}: free, or ours on loopback")]


def _command(pid: int | None) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).cmdline() if pid else []
    return []


def _named(pid: int | None) -> str:
    return f"{' '.join(_command(pid))[:60] or 'a kernel thread'} (pid {pid})" if pid else "another user's process"
