"""Processes of this project: what runs, who owns it, who holds a lock or a port."""

import contextlib
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from flows.doctor.finding import Finding, fail, ok, warn
from harr.errors import DamagedFile
from harr.io.files import read_state

PROGRAMS = ("dvc", "prefect", "mlflow", "milvus-lite", "prefect.engine")
RUNNERS = {"flows.pipeline", "prefect.engine"}
"""What has DVC run a stage: a pipeline started by hand, and the process in which a worker runs a flow."""


@dataclass(frozen=True)
class Process:
    """A process of this project: ``name`` is its module or program with the sub-command.

    ``recipe`` names the recipe in whose folder it runs; empty in the project's own.
    """

    pid: int
    parent: int
    started: float
    name: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    recipe: str = ""


@dataclass(frozen=True)
class Table:
    """All living processes (number to parent and start time) and those of this project."""

    parents: Mapping[int, int]
    started: Mapping[int, float]
    ours: tuple[Process, ...]

    def lives(self, pid: int, started: float) -> bool:
        """True if the process lives and is no later one with the same number."""
        return abs(self.started.get(pid, -1e9) - started) < 5

    def ancestors(self, process: Process) -> list[Process]:
        """Those of the project's processes that it descends from."""
        known, found, pid = {one.pid: one for one in self.ours}, [], process.parent
        while pid > 1 and pid in self.parents:
            found += [known[pid]] if pid in known else []
            pid = self.parents[pid]
        return found


def scan(root: Path) -> Table:
    """Look at every process once; those of the pipeline in ``root``, or in a recipe's folder there, are ours."""
    here, parents, started, ours = root.resolve(), {}, {}, []
    for process in psutil.process_iter(["ppid", "create_time", "cmdline", "status"]):
        seen = process.info
        if seen["status"] == psutil.STATUS_ZOMBIE:
            continue
        parents[process.pid], started[process.pid] = seen["ppid"], seen["create_time"]
        name = called(seen["cmdline"] or ())
        with contextlib.suppress(psutil.Error, OSError):
            if not name or process.pid == os.getpid():
                continue
            place = Path(process.cwd())
            if place == here or place.parent == here / ".harr/runs":
                recipe = "" if place == here else place.name
                wanted = {"DVC_STAGE", "HARR_EXECUTION", "HARR_PARENT_TASK_RUN"}
                known = {key: value for key, value in process.environ().items() if key in wanted}
                ours.append(Process(process.pid, seen["ppid"], seen["create_time"], name, known, recipe))
    return Table(parents, started, tuple(sorted(ours, key=lambda one: one.started)))


def called(command: Iterable[str]) -> str:
    """The name of a process of the pipeline, or "".

    >>> called(["python", "-m", "flows.train"]), called(["python", "/venv/bin/dvc", "repro", "-s"])
    ('flows.train', 'dvc repro')
    >>> called(["python", "-m", "prefect", "server", "start"]), called(["vim", "flows.txt"])
    ('prefect server start', '')
    """
    words = list(command)
    if not words or Path(words[0]).name in ("sh", "bash", "dash"):
        return ""
    for place, word in enumerate(words[:4]):
        name = Path(word).name
        if name.startswith("flows.") and name != "flows.cli" and place and words[place - 1] == "-m":
            return " ".join([name, *words[place + 1 : place + 2]]) if name == "flows.server" else name
        if name in PROGRAMS:
            rest = [part for part in words[place + 1 : place + 3] if part.isalpha()]
            return " ".join([name, *rest])
    return ""


def owners(root: Path) -> list[dict[str, object]]:
    """The owner files of .harr as they stand, dead or alive; nothing is forgotten here."""
    found = []
    for path in sorted((root / ".harr/owners").glob("*.json")):
        with contextlib.suppress(DamagedFile):
            found.append(read_state(path, "", pid=int, started=float, id=str))
    return found


def live_executions(table: Table, root: Path) -> set[str]:
    """Names of the executions that a living process belongs to."""
    told = {one.environment["HARR_EXECUTION"] for one in table.ours if "HARR_EXECUTION" in one.environment}
    alive = [one for one in owners(root) if table.lives(int(str(one["pid"])), float(str(one["started"])))]
    return told | {str(one["id"]) for one in alive}


def orphans(table: Table, root: Path) -> list[tuple[Process, str]]:
    """Processes that nobody waits for any more, each with the reason."""
    found = []
    for one in table.ours:
        above = [ancestor.name.split()[0] for ancestor in table.ancestors(one)]
        if one.name.startswith("flows.server"):
            alive = [told for told in owners(root) if table.lives(int(str(told["pid"])), float(str(told["started"])))]
            if one.name.endswith("--supervise") and not alive and time.time() - one.started > 5:
                found.append((one, "no run owns its Prefect server"))
        elif one.name.startswith("flows.") and "DVC_STAGE" in one.environment and "dvc" not in above:
            found.append((one, f"its dvc repro of stage {one.environment['DVC_STAGE']} is gone"))
        elif one.name.startswith("dvc") and "HARR_PARENT_TASK_RUN" in one.environment and RUNNERS.isdisjoint(above):
            found.append((one, "its flows.pipeline is gone"))
    return found


def check_orphans(table: Table, root: Path) -> list[Finding]:
    """Stages that run on after their `dvc repro` was killed: a second one would start beside them."""
    lost = orphans(table, root)
    told = [
        fail("orphan", f"{one.name} (pid {one.pid}) runs on; {why}", f"kill {one.pid}   (finished work is kept)")
        for one, why in lost
    ]
    others = len(table.ours) - len(lost)
    return told or [ok("processes", f"{others} at work, no orphans" if others else "none at work, no orphans")]


def check_milvus_lock(root: Path, table: Table) -> list[Finding]:
    """Who has a Milvus Lite folder open; the file LOCK stays for good and says nothing by itself."""
    found = []
    for path in [*root.glob("data/index/milvus.db/LOCK"), *root.glob("work/index/*/out/milvus.db/LOCK")]:
        place = path.parent.relative_to(root)
        names, lost = {one.pid: one.name for one in table.ours}, {one.pid for one, _ in orphans(table, root)}
        for pid in lock_holders(path):
            if pid in names and pid not in lost:
                found.append(ok("index lock", f"{place} is open in {names[pid]} (pid {pid})"))
            elif pid in table.parents:
                what = f"{place} is held by {_told(pid)}; stages cannot open it"
                found.append(warn("index lock", what, f"kill {pid}"))
            else:
                heirs = with_open(str(path.resolve()))
                what = f"{place} is still locked by a child of pid {pid}, which is gone: {', '.join(map(_told, heirs))}"
                found.append(fail("index lock", what, f"kill {' '.join(map(str, heirs))}"))
    return found


def lock_holders(path: Path) -> list[int]:
    """Numbers of the processes that hold a flock on a file; looking takes no lock.

    Where the kernel does not list locks, the lock is taken and given back, and a holder has the number 0.
    """
    listing = Path("/proc/locks")
    if listing.exists():
        inode = str(path.stat().st_ino)
        rows = [line.split() for line in listing.read_text().splitlines()]
        return [int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].rsplit(":", 1)[-1] == inode]
    with path.open("rb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return [0]
    return []


@dataclass(frozen=True)
class Listener:
    """A TCP port that someone on this machine listens at."""

    host: str
    port: int
    inode: int


def listeners() -> list[Listener]:
    """Listening TCP ports, as the kernel lists them; none where it does not."""
    found = []
    for path, family in ((Path("/proc/net/tcp"), socket.AF_INET), (Path("/proc/net/tcp6"), socket.AF_INET6)):
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A":
                    address, port = words[1].split(":")
                    raw = bytes.fromhex(address)
                    swapped = struct.pack(f">{len(raw) // 4}I", *struct.unpack(f"<{len(raw) // 4}I", raw))
                    found.append(Listener(socket.inet_ntop(family, swapped), int(port, 16), int(words[9])))
    return found


def check_ports(listening: Iterable[Listener], serves: Mapping[int, str], known: Iterable[int]) -> list[Finding]:
    """Ports of `make ui` that another program has, and servers that the whole network can reach.

    Args:
        listening: what :func:`listeners` found.
        serves: port to the name of the program that `make ui` starts there.
        known: ports of the servers that this project talks to.
    """
    findings = []
    for one in listening:
        if one.port not in {*serves, *known}:
            continue
        pid = next(iter(with_open(f"socket:[{one.inode}]")), 0)
        if one.host in ("0.0.0.0", "::"):
            what = f"{one.port} is open to the network ({one.host}), held by {_told(pid)}"
            findings.append(warn("port", what, "restart it with --host 127.0.0.1"))
        if one.port in serves and not any(serves[one.port] in Path(word).name for word in _command(pid)):
            what = f"{one.port} is taken by {_told(pid)}; `make ui` wants it for {serves[one.port]}"
            findings.append(warn("port", what, f"stop it{f' (kill {pid})' if pid else ''} before `make ui`"))
    return findings or [ok("ports", f"{', '.join(map(str, sorted({*serves, *known})))}: free, or ours on loopback")]


def with_open(target: str) -> list[int]:
    """Numbers of the processes that have a file or socket open, as far as we may look."""
    found = []
    for path in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(os.readlink(path / link) == target for link in os.listdir(path)):
                found.append(int(path.parent.name))
    return found


def _command(pid: int) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).cmdline() if pid else []
    return []


def _told(pid: int) -> str:
    return f"{' '.join(_command(pid))[:60] or 'a kernel thread'} (pid {pid})" if pid else "another user's process"
