"""What is read of MLflow's database and server is what MLflow wrote."""

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient
from servers import server_of

from flows.doctor import addresses
from flows.doctor.runs import Store, Version, check_registry, check_runs, lost_runs, read_store, store_address
from flows.doctor.status import status
from flows.server import mlflow_command
from flows.terminal import status_lines
from harr.errors import DamagedFile, ParamsError, ServiceUnavailable
from harr.io.files import digest_of, write_json
from harr.params import Params

ROOT = Path(__file__).parents[3]
PARAMS = Params.load(ROOT / "recipes/smoke.yaml")
NAME = PARAMS.tracking.registered_model


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Path:
    """mlflow.db with two runs of the pipeline that never ended, and two versions."""
    folder = tmp_path_factory.mktemp("written")
    shutil.copy(empty_store, folder / "mlflow.db")
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment(PARAMS.tracking.experiment, str(folder / "mlruns"))
    (folder / "full.jsonl").write_text('{"answer_f1": 1.0, "recall": 1}\n{"answer_f1": 0.5, "recall": 1}\n')

    def run(name: str, **tags: str) -> str:
        dotted = {key.replace("_", "."): value for key, value in tags.items()}
        return str(client.create_run(experiment, run_name=name, tags=dotted).info.run_id)

    parent = run("pipeline 1", harr_execution="20260101-000000-1")
    child = run("merge", harr_stage="merge", mlflow_parentRunId=parent)
    client.log_artifact(child, str(folder / "full.jsonl"), "evaluation")
    client.set_terminated(child)
    run("pipeline 2", harr_execution="20260101-000000-2")
    client.create_registered_model(NAME)
    for alias, index in (("champion", "a"), ("candidate", "b")):
        source = f"{folder}/mlruns/{child}/artifacts/retriever"
        version = client.create_model_version(NAME, source, child, {"index": index}, await_creation_for=0).version
        client.set_registered_model_alias(NAME, alias, version)
    return folder


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


@pytest.mark.services
def test_a_server_says_the_same(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "SECONDS", 20)
    monkeypatch.chdir(written)
    server = server_of(written, mlflow_command)
    try:
        server.start()
        found = read_store(written, f"http://127.0.0.1:{server.port}", PARAMS)
    finally:
        server.stop()
    assert seen(found) == seen(read_store(written, "sqlite:///mlflow.db", PARAMS))


@pytest.mark.fault(25)
def test_abandoned_runs_are_named_and_the_fix_ends_them(written: Path) -> None:
    address = f"sqlite:///{written}/mlflow.db"
    store = read_store(written, address, PARAMS)
    alive = {"20260101-000000-1"}
    assert [run.name for run in lost_runs(store, alive)] == ["pipeline 2"]
    (found,) = check_runs(address, store, alive)
    assert found.level == "warn" and "pipeline 2" in found.found
    program = found.fix.removeprefix('python -c "').removesuffix('"')
    exec(program, {})
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


def test_a_model_in_models_that_is_no_version(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidate is another; or somebody changed the weights after a promotion, and it is a line of the status."""
    write_json(project / "models/retriever/harr.json", {})
    here = digest_of(project / "models/retriever")
    monkeypatch.setattr("flows.doctor.stages.read_stages", lambda root: [])
    told = "models/retriever holds none of these models; `dvc checkout merge` puts it back, or `harr register` "
    for model, stray in ((here, False), ("", False), ("0123", True)):
        store = Store(versions=(Version("candidate", "3", "run", "", 0.0, model=model),))
        (found,) = check_registry(project, store, PARAMS)
        assert found.level == ("warn" if stray else "ok")
        store = Store(versions=(Version("champion", "3", "run", "", 0.0, model=model),))
        monkeypatch.setattr("flows.doctor.status.read_store", lambda *given, store=store: store)
        state = status(project, {})
        assert state.stray.startswith(told) == stray and bool(state.stray) == stray
        assert any(told in line for line in status_lines(state)) == stray
    assert found.found == f"candidate 3 of {NAME} is not the model in models/"
    assert found.fix.startswith("harr register")


def test_stores_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database, but long enough to be looked at as one" * 20)
    with pytest.raises(DamagedFile, match=r"is damaged \(file is not a database\)"):
        read_store(tmp_path, "sqlite:///mlflow.db", PARAMS)
    with pytest.raises(ServiceUnavailable, match=r"MLflow at http://127\.0\.0\.1:9 does not answer \(.*; start it"):
        read_store(tmp_path, "http://127.0.0.1:9", PARAMS)
    expected = "foo://x is no address of an MLflow store; set tracking.uri or MLFLOW_TRACKING_URI to http://... or "
    with pytest.raises(ParamsError) as caught:
        read_store(tmp_path, "foo://me:secret@x", PARAMS)
    assert str(caught.value) == f"{expected}sqlite:///..."
    assert store_address(PARAMS, {}) == "sqlite:///mlflow.db"
    assert store_address(PARAMS, {"MLFLOW_TRACKING_URI": "http://a"}) == "http://a"
