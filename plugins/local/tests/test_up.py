"""`harr up` and `harr down`: schedules that a worker picks up, cancelled and killed runs, nothing left behind."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
from harr_local.servers import listens
from harr_local.up import _start_retriever, down, up
from servers import ask, free_port, until

from harr.errors import DamagedFile, InUse
from harr.io.files import read_json, write_json
from tasks.runtime.locks import LOCKS, hold
from tasks.tracking.execution import is_alive, pid_of, process_name

pytestmark = pytest.mark.services
ROOT = Path(__file__).parents[3]
SECONDS = 120.0  # most take a tenth of it; a busy machine is no failure
DVC = f"stages: {{nap: {{cmd: {shlex.quote(sys.executable)} nap.py, outs: [nap.txt, metrics/nap.json]}}}}\n"
NAP = """
import time
from pathlib import Path
from tasks.runtime import signals
from tasks.runtime.command import run_command
from harr.io.progress import stoppable

def nap():
    signals.follow()
    for unit in stoppable(range(1000)):
        Path("begun").write_text(str(unit))
        time.sleep(0.7)
        Path("ended").write_text(str(unit))

run_command(nap)
"""
TINY = """
from pathlib import Path
from prefect import flow

@flow
def tiny():
    Path("tiny.txt").write_text("a worker was here")
"""
OFTEN = """
  - {name: often, entrypoint: "tiny.py:tiny", schedules: [{interval: 10}], work_pool: {name: cpu}}"""
DEPLOYMENTS = f"""
deployments:{OFTEN}
  - {{name: on-demand, entrypoint: "flows/pipeline.py:pipeline", work_pool: {{name: cpu}}}}
"""


@dataclass
class Place:
    """A folder with servers and workers of its own."""

    folder: Path
    url: str
    ports: tuple[str, ...]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of harr."""
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    @property
    def environment(self) -> dict[str, str]:
        gone = ("PREFECT", "HARR", "MLFLOW_TRACKING")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(gone)}
        return {**kept, "TMPDIR": str(self.folder / "tmp")}

    def ask(self, path: str, body: Any = None) -> Any:
        """Prefect's answer."""
        return ask(f"{self.url}/{path}", body)

    def runs(self, flow: str) -> list[dict[str, Any]]:
        """The flow runs of a flow, the latest first."""
        return self.ask("flow_runs/filter", {"flows": {"name": {"any_": [flow]}}, "sort": "START_TIME_DESC"})

    def state(self, flow_run: str) -> str:
        return str(self.ask(f"flow_runs/{flow_run}")["state_name"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    (folder / "tmp").mkdir()
    for name in ("harr", "tasks", "flows", "recipes"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "recipes/smoke.yaml", folder / "params.yaml")
    texts = {"dvc.yaml": DVC, "nap.py": NAP, "tiny.py": TINY, "prefect.yaml": DEPLOYMENTS}
    for name, text in texts.items():
        (folder / name).write_text(text)
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet"], cwd=folder, check=True)
    prefect, mlflow = free_port(), free_port()
    made = Place(
        folder,
        f"http://127.0.0.1:{prefect}/api",
        (f"--prefect-port={prefect}", f"--mlflow-port={mlflow}"),
    )
    try:
        done = made.run("flows.cli", "up", *made.ports)
        assert done.returncode == 0, done.stderr + done.stdout
        yield made
    finally:
        made.run("flows.cli", "down")


def scheduled(place: Place) -> str:
    """A run of all stages by the worker, whose stage has begun."""
    (place.folder / "begun").unlink(missing_ok=True)
    deployment = place.ask("deployments/name/pipeline/on-demand")["id"]
    run = str(place.ask(f"deployments/{deployment}/create_flow_run", {})["id"])
    assert until(lambda: (place.folder / "begun").exists(), SECONDS), place.state(run)
    return run


def processes_in(folder: Path) -> list[psutil.Process]:
    """Every process that works in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            pass
    return found


def naps(place: Place) -> list[psutil.Process]:
    """What runs dvc or its stage."""
    found = []
    for process in processes_in(place.folder):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended as we looked
            found += [process] if {"dvc", "nap.py"} & {*process.cmdline()} else []
    return found


def test_a_worker_picks_up_a_scheduled_run_by_itself(place: Place) -> None:
    """With SQLAlchemy 2.1 the scheduler of Prefect 3.8 dies silently: no run is ever scheduled."""
    assert until(lambda: (place.folder / "tiny.txt").exists(), SECONDS)
    deployment = place.ask("deployments/name/tiny/often")["id"]
    place.ask(f"deployments/{deployment}/pause_deployment", {})  # the later tests need the machine
    (place.folder / "prefect.yaml").write_text(DEPLOYMENTS.replace(OFTEN, ""))  # Prefect resumes what it deploys again
    assert until(lambda: "Completed" in [run["state_name"] for run in place.runs("tiny")], SECONDS)


def test_up_again_changes_nothing_and_pools_and_limit_are_there(place: Place) -> None:
    before = read_json(place.folder / ".harr/up.json")
    done = place.run("flows.cli", "up", *place.ports)
    assert done.returncode == 0 and place.url.removesuffix("/api") in done.stdout
    assert read_json(place.folder / ".harr/up.json") == before
    there = {**place.environment, "PREFECT_API_URL": place.url}
    subprocess.run(
        [sys.executable, "-m", "harr_local.deployments"], cwd=place.folder, env=there, capture_output=True, check=True
    )
    assert [pool["name"] for pool in place.ask("work_pools/filter", {})] == ["cpu", "gpu"]
    assert place.ask("work_pools/gpu")["concurrency_limit"] == 1
    assert [one["name"] for one in place.ask("automations/filter", {})] == ["crashed runs"]
    form = place.ask("deployments/name/pipeline/on-demand")["parameter_openapi_schema"]["properties"]
    assert {"params.yaml", "smoke"} <= set(form["recipe"]["enum"]) and form["promote"]["type"] == "boolean"


@pytest.mark.fault(25)
def test_what_a_killed_run_left_stops_by_itself_and_prefect_marks_the_run(place: Place) -> None:
    run = scheduled(place)
    [flow] = [one for one in naps(place)[0].parents() if "prefect.engine" in one.cmdline()]
    flow.kill()
    assert until(lambda: not naps(place), 30), "the stage looks for whoever started it"
    assert until(lambda: place.state(run) == "Crashed", SECONDS)


@pytest.mark.fault(25)
def test_a_cancelled_run_stops_its_stage_between_two_units(place: Place) -> None:
    """Its state is set as the button in Prefect does it."""
    run = scheduled(place)
    began = time.monotonic()
    place.ask(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}})
    assert until(lambda: not naps(place), 60)
    assert time.monotonic() - began < 30, "the worker looks every few seconds"
    assert (place.folder / "ended").read_text() == (place.folder / "begun").read_text()
    assert until(lambda: place.state(run) == "Cancelled", 60)


def test_a_server_that_was_killed_is_started_again_at_its_port(place: Place) -> None:
    """Its own child processes, which are left, listen there."""
    before = read_json(place.folder / ".harr/up.json")["MLflow"]
    psutil.Process(pid_of(before["process"])).kill()
    done = place.run("flows.cli", "up", *place.ports)
    assert done.returncode == 0, done.stderr
    after = read_json(place.folder / ".harr/up.json")["MLflow"]
    assert after["page"] == before["page"] and after["process"] != before["process"]


def test_child_processes_of_a_killed_server_are_killed_before_anybody_has_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then its number is a zombie's, and the port was said to be another program's."""
    monkeypatch.chdir(tmp_path)
    port = free_port()
    child = f"{shlex.quote(sys.executable)} -m http.server --bind 127.0.0.1 {port}"
    with subprocess.Popen(["sh", "-c", f"{child} & wait"], start_new_session=True, stderr=subprocess.DEVNULL) as server:
        note = {"process": process_name(server.pid), "page": f"http://127.0.0.1:{port}"}
        write_json(tmp_path / ".harr/up.json", {"MLflow": note})
        assert until(lambda: listens(port), 30)
        server.send_signal(signal.SIGKILL)
        assert until(lambda: psutil.Process(server.pid).status() == psutil.STATUS_ZOMBIE, 30)
        down()
        assert not listens(port)


def test_a_note_of_another_machine_or_boot_kills_nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["sh", "-c", "sleep 300 > /dev/null & echo $!"]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True) as leader:
        child = process_name(int(leader.communicate()[0]))
    try:
        note = {"process": f"another-{leader.pid}-1", "page": f"http://127.0.0.1:{free_port()}"}
        write_json(tmp_path / ".harr/up.json", {"MLflow": note})
        down()
        assert is_alive(child)
    finally:
        os.killpg(leader.pid, signal.SIGKILL)


def test_everything_else_runs_on_where_the_port_of_the_retriever_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    started = {"MLflow": {"process": process_name(), "page": "http://127.0.0.1:1"}}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _start_retriever(started, port)
    assert list(started) == ["MLflow"] and is_alive(started["MLflow"]["process"])
    line = f"warning: port {port} for Serve is taken by another program; `harr up --serve-port N`\n"
    assert capsys.readouterr().err == line


def test_a_run_whose_worker_was_stopped_before_it_answered_is_marked_cancelled(place: Place) -> None:
    flow = place.ask("flows/", {"name": "nobody's"})["id"]
    state = {"type": "CANCELLING", "name": "Cancelling"}
    run = place.ask("flow_runs/", {"flow_id": flow, "state": state})["id"]
    there = {**place.environment, "PREFECT_API_URL": place.url}
    close = "from harr_local.deployments import close_runs; close_runs()"
    subprocess.run([sys.executable, "-c", close], cwd=place.folder, env=there, capture_output=True, check=True)
    assert place.state(run) == "Cancelled"


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_damaged_note_of_what_runs_is_one_line(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".harr").mkdir()
    (tmp_path / ".harr/up.json").write_text(text)
    with pytest.raises(DamagedFile, match="stop its servers and workers yourself, then delete it"):
        down()


def test_only_one_up_or_down_works_in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with hold(LOCKS / "up", print), pytest.raises(InUse, match=f"at work in .*: pid {os.getpid()}"):
        up(1, 2, 3)


def test_down_cancels_a_run_between_two_units_and_leaves_no_process_and_no_file_of_theirs(place: Place) -> None:
    """The last test: everything is stopped, a run in work with it, as the button in Prefect does it."""
    run = scheduled(place)
    done = place.run("flows.cli", "down")
    assert done.returncode == 0, done.stderr
    assert not processes_in(place.folder)
    assert (place.folder / "ended").read_text() == (place.folder / "begun").read_text()
    with closing(sqlite3.connect(place.folder / ".harr/prefect/prefect.db")) as store:
        rows = store.execute("select id, state_name from flow_run")
        states = {str(UUID(name)): state for name, state in rows}
    assert states[run] == "Cancelled"
    lock = place.folder / ".dvc/tmp/rwlock"
    assert not lock.exists() or not any(json.loads(lock.read_text()).values())
    left = {path.relative_to(place.folder).as_posix() for path in (place.folder / ".harr").rglob("*")}
    assert not {name for name in left if name.endswith((".json", ".lock", ".tmp", ".pid"))}
    assert place.run("flows.cli", "down").returncode == 0
