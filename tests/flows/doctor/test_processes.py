"""Orphans, locks and ports, with real processes and sockets."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from flows.doctor.processes import (
    Process,
    check_milvus_lock,
    check_orphans,
    check_ports,
    listeners,
    live_executions,
    scan,
    with_open,
)
from harr.io.files import write_json

STAGE = "import time\ntime.sleep(60)\n"
LOCKING = """import fcntl, sys, time
handle = open("data/index/milvus.db/LOCK")
fcntl.flock(handle, fcntl.LOCK_EX)
time.sleep(60)
"""


def soon(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with a stage that does nothing for a minute; whatever still runs in it is killed at the end."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/__init__.py").touch()
    (tmp_path / "flows/train.py").write_text(STAGE)
    (tmp_path / "dvc.yaml").write_text(f"stages: {{train: {{cmd: {shlex.quote(sys.executable)} -m flows.train}}}}")
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], cwd=tmp_path, check=True)
    yield tmp_path
    for one in scan(tmp_path):
        os.kill(one.pid, signal.SIGKILL)


def start(place: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *words], cwd=place, start_new_session=True)


def stage_of(place: Path) -> list[int]:
    return [one.pid for one in scan(place) if one.name == "flows.train"]


def test_a_stage_whose_dvc_was_killed_is_an_orphan(place: Path) -> None:
    dvc = start(place, "-m", "dvc", "repro", "-q")
    soon(lambda: stage_of(place))
    (pid,) = stage_of(place)
    assert [one.level for one in check_orphans(scan(place), place)] == ["ok"]
    dvc.kill()
    dvc.wait()
    (found,) = check_orphans(scan(place), place)
    assert found.level == "fail" and f"pid {pid}" in found.found
    subprocess.run(found.fix.split()[:2], check=True)
    soon(lambda: not stage_of(place))
    assert [one.level for one in check_orphans(scan(place), place)] == ["ok"]


def test_a_stage_started_by_hand_is_none(place: Path) -> None:
    with start(place, "-m", "flows.train") as stage:
        soon(lambda: stage_of(place))
        assert [one.level for one in check_orphans(scan(place), place)] == ["ok"]
        stage.kill()


def test_a_dvc_whose_pipeline_is_gone_is_an_orphan_its_stage_is_not(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARR_PARENT_TASK_RUN", "a")
    with start(place, "-m", "dvc", "repro", "-q") as dvc:
        soon(lambda: stage_of(place))
        (found,) = check_orphans(scan(place), place)
        assert f"dvc repro (pid {dvc.pid})" in found.found and "harr run is gone" in found.found
        os.killpg(dvc.pid, signal.SIGKILL)


ENGINE = """import subprocess, sys
subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=sys.argv[1])
"""


@pytest.mark.parametrize("folder", ["", ".harr/runs/tiny"])
def test_what_a_worker_runs_is_no_orphan_and_not_lost_also_in_a_recipe_s_folder(
    place: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "prefect").mkdir()
    (place / "prefect/__init__.py").touch()
    (place / "prefect/engine.py").write_text(ENGINE)
    works = place / folder
    if folder:
        works.mkdir(parents=True)
        for name in ("flows", "dvc.yaml", ".dvc"):
            (works / name).symlink_to(place / name)
    monkeypatch.setenv("HARR_PARENT_TASK_RUN", "a")
    monkeypatch.setenv("HARR_EXECUTION", "its flow run")
    engine = start(place, "-m", "prefect.engine", str(works))
    try:
        soon(lambda: stage_of(place))
        ours = scan(place)
        assert [one.level for one in check_orphans(ours, place)] == ["ok"]
        assert live_executions(ours, place) == {"its flow run"}
        assert {one.recipe for one in ours if one.name == "flows.train"} == {Path(folder).name}
    finally:
        os.killpg(engine.pid, signal.SIGKILL)
        engine.wait()


def test_a_supervisor_without_a_run(tmp_path: Path) -> None:
    here = psutil.Process()
    server = Process(7, time.time() - 60, "flows.server --supervise", (), {"DVC_STAGE": "train"})
    assert [one.level for one in check_orphans([server], tmp_path)] == ["fail"]
    write_json(tmp_path / ".harr/owners/1.json", {"pid": here.pid, "started": here.create_time(), "id": "mine"})
    assert [one.level for one in check_orphans([server], tmp_path)] == ["ok"]


def test_live_executions_are_those_of_living_owners_and_of_what_processes_say(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = psutil.Process()
    write_json(place / ".harr/owners/1.json", {"pid": here.pid, "started": here.create_time(), "id": "mine"})
    write_json(place / ".harr/owners/2.json", {"pid": here.pid, "started": here.create_time() - 99, "id": "earlier"})
    monkeypatch.setenv("HARR_EXECUTION", "named")
    with start(place, "-m", "flows.train") as stage:
        soon(lambda: stage_of(place))
        assert live_executions(scan(place), place) == {"mine", "named"}
        stage.kill()


def test_who_holds_the_lock_of_milvus_lite(place: Path) -> None:
    lock = place / "data/index/milvus.db/LOCK"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert check_milvus_lock(scan(place), place) == []
    (place / "flows/train.py").write_text(LOCKING)
    for words, level in ((("-m", "flows.train"), "ok"), (("flows/train.py",), "warn")):
        with start(place, *words) as holder:
            soon(lambda: with_open(lock))
            (found,) = check_milvus_lock(scan(place), place)
            assert found.level == level and f"pid {holder.pid}" in found.found
            holder.kill()


def test_a_lock_that_a_dead_process_left_to_its_child(place: Path) -> None:
    lock = place / "data/index/milvus.db/LOCK"
    lock.parent.mkdir(parents=True)
    lock.touch()
    forking = LOCKING.replace("time.sleep(60)", "import os; os.fork() or time.sleep(60)")
    with start(place, "-c", forking) as parent:
        assert parent.wait() == 0
    (found,) = check_milvus_lock(scan(place), place)
    assert found.level == "warn" and "is held by" in found.found and f"pid {parent.pid}" not in found.found
    subprocess.run(found.fix.split(), check=True)
    soon(lambda: not with_open(lock))


def test_who_has_a_file_open(tmp_path: Path) -> None:
    (tmp_path / "LOCK").touch()
    assert with_open(tmp_path / "LOCK") == []
    with (tmp_path / "LOCK").open():
        assert with_open(tmp_path / "LOCK") == [os.getpid()]


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


SERVING = """import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_port_that_another_program_has(tmp_path: Path) -> None:
    # No name is lost where a long command is cut; the name of a folder is no program's.
    script = tmp_path / "prefect" / ("a_folder_of_a_long_name_" * 4) / "mlflow"
    script.parent.mkdir(parents=True)
    script.write_text(SERVING)
    command = [sys.executable, str(script), "server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        (found,) = check_ports(listeners(), {port: "prefect"}, [])
        assert found.level == "warn" and f"kill {server.pid}" in found.fix
        assert check_ports(listeners(), {port: "mlflow"}, [])[0].level == "ok"
        server.communicate()
    assert check_ports(listeners(), {port: "prefect"}, [])[0].level == "ok"
