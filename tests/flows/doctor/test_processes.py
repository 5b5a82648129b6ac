"""Orphans, locks and ports, with real processes and sockets."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from servers import until

from flows.doctor.finding import Finding
from flows.doctor.processes import (
    Process,
    check_orphans,
    check_ports,
    listeners,
    live_executions,
    scan,
)
from harr.io.files import write_json

STAGE = "import time\ntime.sleep(60)\n"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with a stage that does nothing for a minute; whatever still runs in it is killed at the end."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/__init__.py").touch()
    (tmp_path / "flows/train.py").write_text(STAGE)
    (tmp_path / "dvc.yaml").write_text(f"stages: {{train: {{cmd: {shlex.quote(sys.executable)} -m flows.train}}}}")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n")
    yield tmp_path
    for one in scan(tmp_path):
        os.kill(one.pid, signal.SIGKILL)


def start(place: Path, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, *words], cwd=place, start_new_session=True)


def stage_of(place: Path) -> int:
    """The stage's number, once it runs."""
    (pid,) = until(lambda: [one.pid for one in scan(place) if one.name == "flows.train"], 60)
    return int(pid)


def orphaned(place: Path, *processes: Process) -> Finding:
    (found,) = check_orphans(processes or scan(place), place)
    return found


@pytest.mark.services
def test_a_stage_whose_dvc_was_killed_is_an_orphan(place: Path) -> None:
    dvc = start(place, "-m", "dvc", "repro", "-q")
    pid = stage_of(place)
    assert orphaned(place).level == "ok"
    dvc.kill()
    dvc.wait()
    found = orphaned(place)
    assert found.level == "fail" and f"pid {pid}" in found.found
    subprocess.run(found.fix.split()[:2], check=True)
    assert until(lambda: orphaned(place).found == "none at work, no orphans", 20)


def test_who_waits_for_what(tmp_path: Path) -> None:
    here, old = psutil.Process(), time.time() - 60
    server = Process(7, old, "flows.server --supervise", (), {"DVC_STAGE": "train"})
    assert orphaned(tmp_path, server).level == "fail"
    assert orphaned(tmp_path, Process(7, time.time(), server.name)).level == "ok", "its run may still note itself"
    assert orphaned(tmp_path, Process(7, old, "flows.train")).level == "ok", "started by hand"
    assert orphaned(tmp_path, Process(7, old, "flows.train", ("dvc",), {"DVC_STAGE": "train"})).level == "ok"
    assert "of stage train is gone" in orphaned(tmp_path, Process(7, old, "flows.train", (), server.environment)).found
    run = {"HARR_PARENT_TASK_RUN": "a"}
    assert orphaned(tmp_path, Process(7, old, "dvc repro", ("harr",), run)).level == "ok"
    assert "its harr run is gone" in orphaned(tmp_path, Process(7, old, "dvc repro", (), run)).found
    owner = {"pid": here.pid, "started": here.create_time(), "id": "mine"}
    write_json(tmp_path / ".harr/owners/1.json", owner)
    write_json(tmp_path / ".harr/owners/2.json", owner | {"started": here.create_time() - 99, "id": "earlier"})
    assert orphaned(tmp_path, server).level == "ok"
    named = Process(8, old, "flows.train", (), {"HARR_EXECUTION": "named"})
    assert live_executions([server, named], tmp_path) == {"mine", "named"}


@pytest.mark.parametrize(("host", "told"), [("127.0.0.1", 0), ("0.0.0.0", 1), ("::1", 0), ("::", 1)])
def test_a_server_open_to_the_network(host: str, told: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as server:
        try:
            server.bind((host, 0))
        except OSError:
            pytest.skip(f"no {host} here")
        server.listen()
        port = server.getsockname()[1]
        assert [one.laddr.ip for one in listeners() if one.laddr.port == port] == [host]
        found = [one for one in check_ports(listeners(), {}, [port]) if one.level == "warn"]
        assert len(found) == told
        assert all(f"pid {os.getpid()}" in one.found and "127.0.0.1" in one.fix for one in found)
        assert [one.level for one in check_ports(listeners(), {}, [])] == ["ok"]
        own = Path(psutil.Process().cmdline()[0]).name  # pytest-xdist gives its processes other names
        assert len(check_ports(listeners(), {port: own}, [])) == max(told, 1), "it is this program"
        for other in ("prefect", Path(sys.executable).parent.name):  # the name of a folder is no program's
            found = check_ports(listeners(), {port: other}, [])
            assert len(found) == told + 1 and f"kill {os.getpid()}" in found[-1].fix
