"""What is read of MLflow's database and server is what MLflow wrote."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.doctor import addresses
from flows.doctor.addresses import ask
from flows.doctor.runs import Store, Version, check_registry, check_runs, lost_runs, read_store, store_address
from flows.doctor.status import status
from flows.terminal import status_lines
from harr.errors import DamagedFile, ParamsError, ServiceUnavailable
from harr.io.files import digest_of, write_json
from harr.params import Params

ROOT = Path(__file__).parents[3]
PARAMS = Params.load(ROOT / "recipes/smoke.yaml")
NAME = PARAMS.tracking.registered_model
WRITE = f"""
from mlflow import MlflowClient
client = MlflowClient("sqlite:///mlflow.db")
experiment = client.create_experiment({PARAMS.tracking.experiment!r})
def run(name, **tags):
    dotted = {{key.replace("_", "."): value for key, value in tags.items()}}
    return client.create_run(experiment, run_name=name, tags=dotted)
parent = run("pipeline 1", harr_execution="20260101-000000-1").info.run_id
child = run("merge", harr_stage="merge", mlflow_parentRunId=parent)
client.set_terminated(child.info.run_id)
lost = run("pipeline 2", harr_execution="20260101-000000-2").info.run_id
open("full.jsonl", "w").write('{{"answer_f1": 1.0, "recall": 1}}\\n{{"answer_f1": 0.5, "recall": 1}}\\n')
client.log_artifact(child.info.run_id, "full.jsonl", "evaluation")
client.create_registered_model({NAME!r})
source = child.info.artifact_uri + "/retriever"
for index in ("a", "b"):
    run_id, tags = child.info.run_id, {{"index": index}}
    client.create_model_version({NAME!r}, source, run_id=run_id, tags=tags, await_creation_for=0)
client.set_registered_model_alias({NAME!r}, "champion", "1")
client.set_registered_model_alias({NAME!r}, "candidate", "2")
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mlflow.db with two runs of the pipeline that never ended, and two versions."""
    folder = tmp_path_factory.mktemp("written")
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    subprocess.run([sys.executable, "-c", WRITE], cwd=folder, env=environment, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def server(written: Path) -> Iterator[str]:
    """The same store behind a real server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    words = ["-m", "mlflow", "server", "--backend-store-uri", "sqlite:///mlflow.db", "--workers", "1"]
    words += ["--host", "127.0.0.1", "--port", port, "--artifacts-destination", "mlruns"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        [sys.executable, *words], cwd=written, env=environment, stdout=quiet, stderr=quiet, start_new_session=True
    ) as process:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 120
        while not answers(address):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        yield address
        os.killpg(process.pid, 15)


def answers(address: str) -> bool:
    try:
        return ask(f"{address}/health").status_code == 200
    except ServiceUnavailable:
        return False


def seen(store: Store) -> tuple[object, ...]:
    runs = {(run.name, run.status, run.execution, run.stage) for run in store.runs}
    versions = {(one.alias, one.number, one.index, one.figure, one.n) for one in store.versions}
    return runs, versions


def test_runs_and_versions_of_the_file(written: Path) -> None:
    runs, versions = seen(read_store(written, "sqlite:///mlflow.db", PARAMS))
    assert runs == {
        ("pipeline 1", "RUNNING", "20260101-000000-1", ""),
        ("merge", "FINISHED", "", "merge"),
        ("pipeline 2", "RUNNING", "20260101-000000-2", ""),
    }
    assert versions == {("champion", "1", "a", 0.75, 2), ("candidate", "2", "b", 0.75, 2)}


def test_a_server_says_the_same(written: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "SECONDS", 20)
    assert seen(read_store(written, server, PARAMS)) == seen(read_store(written, "sqlite:///mlflow.db", PARAMS))


def test_abandoned_runs_are_named_and_the_fix_ends_them(written: Path) -> None:
    address = f"sqlite:///{written}/mlflow.db"
    store = read_store(written, address, PARAMS)
    alive = {"20260101-000000-1"}
    assert [run.name for run in lost_runs(store, alive)] == ["pipeline 2"]
    (found,) = check_runs(address, store, alive)
    assert found.level == "warn" and "pipeline 2" in found.found
    program = found.fix.removeprefix('python -c "').removesuffix('"')
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    mended = read_store(written, address, PARAMS)
    assert check_runs(address, mended, alive)[0].level == "ok"
    assert check_runs("http://127.0.0.1:1", store, set())[0].level == "ok"


def test_a_champion_of_another_index(written: Path, tmp_path: Path) -> None:
    store = read_store(written, "sqlite:///mlflow.db", PARAMS)
    assert check_registry(tmp_path, store, PARAMS)[0].level == "ok"
    write_json(tmp_path / "data/vectors/manifest.json", {"identity": "b"})
    (found,) = check_registry(tmp_path, store, PARAMS)
    assert found.level == "fail" and found.found.startswith("champion 1") and "not b" in found.found
    write_json(tmp_path / "data/vectors/manifest.json", {"identity": "a"})
    assert [one.level for one in check_registry(tmp_path, store, PARAMS)] == ["warn"]


def test_a_candidate_that_is_not_the_model_in_models(tmp_path: Path) -> None:
    write_json(tmp_path / "models/retriever/harr.json", {})
    here = digest_of(tmp_path / "models/retriever")
    for model, level in ((here, "ok"), ("", "ok"), ("0123", "warn")):
        store = Store(versions=(Version("candidate", "3", "run", "", 0.0, model=model),))
        (found,) = check_registry(tmp_path, store, PARAMS)
        assert found.level == level
    assert found.found == f"candidate 3 of {PARAMS.tracking.registered_model} is not the model in models/"
    assert found.fix.startswith("harr register")


def test_a_model_that_is_no_version_is_a_line_of_the_status(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody changed the weights in models/ after a promotion; the champion's are in the registry as ever."""
    write_json(project / "models/retriever/harr.json", {})
    here = digest_of(project / "models/retriever")
    monkeypatch.setattr("flows.doctor.stages.read_stages", lambda root: [])
    told = "models/retriever holds none of these models; `dvc checkout merge` puts it back, or `harr register` "
    for model, stray in ((here, False), ("", False), ("0123", True)):
        store = Store(versions=(Version("champion", "3", "run", "", 0.0, model=model),))
        monkeypatch.setattr("flows.doctor.status.read_store", lambda *given, store=store: store)
        state = status(project, {})
        assert state.stray.startswith(told) == stray and bool(state.stray) == stray
        assert any(told in line for line in status_lines(state)) == stray


def test_what_is_read_is_not_written(written: Path, tmp_path: Path) -> None:
    before = (written / "mlflow.db").read_bytes()
    assert read_store(written, "sqlite:///mlflow.db", PARAMS).runs
    assert (written / "mlflow.db").read_bytes() == before
    assert read_store(tmp_path, "sqlite:///mlflow.db", PARAMS) == Store()
    (tmp_path / "empty.db").touch()
    assert read_store(tmp_path, "sqlite:///empty.db", PARAMS) == Store()
    assert [path.name for path in tmp_path.iterdir()] == ["empty.db"] and not (tmp_path / "empty.db").stat().st_size


def test_stores_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database, but long enough to be looked at as one" * 20)
    with pytest.raises(DamagedFile, match=r"is damaged \(file is not a database\)"):
        read_store(tmp_path, "sqlite:///mlflow.db", PARAMS)
    with pytest.raises(ServiceUnavailable, match=r"MLflow at http://127\.0\.0\.1:9 does not answer \(.*; start it"):
        read_store(tmp_path, "http://127.0.0.1:9", PARAMS)
    with pytest.raises(ParamsError, match=r"foo://x is no address of an MLflow store"):
        read_store(tmp_path, "foo://x", PARAMS)


def test_where_runs_go() -> None:
    assert store_address(PARAMS, {}) == "sqlite:///mlflow.db"
    assert store_address(PARAMS, {"MLFLOW_TRACKING_URI": "http://a"}) == "http://a"
