"""Versions read from MLflow's database and server are what MLflow wrote; a changed model is noticed."""

import shutil
from pathlib import Path

import pytest
from harr_local.servers import mlflow_command
from mlflow import MlflowClient
from servers import server_of

from flows.status import status
from flows.terminal import status_lines
from flows.versions import Version, open_registry, read_versions
from flows.workspace import store_variables
from harr.errors import ParamsError, ServiceUnavailable
from harr.io.files import digest_of, write_json
from harr.params import Params
from tasks.tracking.client import address_of

ROOT = Path(__file__).parents[2]
PARAMS = Params.load(ROOT / "recipes/smoke.yaml")
NAME = PARAMS.tracking.registered_model
RULES = '{"metric": "answer_f1", "baseline": "frozen", "resamples": 200, "seed": 0, "min_questions": 1}'


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Path:
    """mlflow.db with two versions."""
    folder = tmp_path_factory.mktemp("written")
    shutil.copy(empty_store, folder / "mlflow.db")
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment(PARAMS.tracking.experiment, str(folder / "mlruns"))
    (folder / "trained.jsonl").write_text('{"answer_f1": 1.0, "recall": 1}\n{"answer_f1": 0.5, "recall": 1}\n')

    child = str(client.create_run(experiment, run_name="merge").info.run_id)
    client.log_artifact(child, str(folder / "trained.jsonl"), "evaluation")
    client.set_terminated(child)
    client.create_registered_model(NAME)
    for alias, index in (("champion", "a"), ("candidate", "b")):
        source = f"{folder}/mlruns/{child}/artifacts/retriever"
        version = client.create_model_version(
            NAME, source, child, {"index": index, "rules": RULES}, await_creation_for=0
        ).version
        client.set_registered_model_alias(NAME, alias, version)
    return folder


def seen(versions: tuple[Version, ...]) -> set[tuple[object, ...]]:
    return {(one.alias, one.number, one.index, one.figure) for one in versions}


def test_versions_of_the_file(written: Path) -> None:
    versions = seen(read_versions(open_registry(written, "sqlite:///mlflow.db"), PARAMS))
    assert versions == {
        ("champion", "1", "a", "75.0 % answer F1 (n 2)"),
        ("candidate", "2", "b", "75.0 % answer F1 (n 2)"),
    }


@pytest.mark.services
def test_a_server_says_the_same(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.versions.SECONDS", 20)
    monkeypatch.chdir(written)
    server = server_of(written, mlflow_command)
    try:
        server.start()
        found = read_versions(open_registry(written, f"http://127.0.0.1:{server.port}"), PARAMS)
    finally:
        server.stop()
    assert seen(found) == seen(read_versions(open_registry(written, "sqlite:///mlflow.db"), PARAMS))


def test_a_model_in_models_that_is_no_version(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that were changed after a promotion get a line in the status."""
    write_json(project / "models/retriever/harr.json", {})
    here = digest_of(project / "models/retriever")
    monkeypatch.setattr("flows.stages.read_stages", lambda root: [])
    line = "models/retriever holds none of these models; `dvc checkout merge` puts it back, or `harr record "
    for model, stray in ((here, False), ("", False), ("0123", True)):
        versions = (Version("champion", "3", "run", "", 0.0, model=model),)
        monkeypatch.setattr("flows.status.read_versions", lambda *given, versions=versions: versions)
        state = status(project, {})
        assert state.stray.startswith(line) == stray and bool(state.stray) == stray
        assert any(line in shown for shown in status_lines(state)) == stray


def test_stores_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database, but long enough to be looked at as one" * 20)
    with pytest.raises(ServiceUnavailable, match=r"cannot be used \(.*file is not a database"):
        read_versions(open_registry(tmp_path, "sqlite:///mlflow.db"), PARAMS)
    with pytest.raises(
        ServiceUnavailable, match=r"MLflow at http://127\.0\.0\.1:9 does not answer \(.*; start the server"
    ):
        read_versions(open_registry(tmp_path, "http://127.0.0.1:9"), PARAMS)


@pytest.mark.parametrize("address", ["foo://me:secret@x", "./mlruns", "file:///tmp/mlruns", "databricks"])
def test_an_address_that_is_no_store_is_refused_before_anything_is_noted_for_it(address: str, project: Path) -> None:
    variable, plain = {"MLFLOW_TRACKING_URI": address}, address.replace("me:secret@", "")
    message = (
        f"{plain} is no address of an MLflow store; "
        "correct the variable MLFLOW_TRACKING_URI: http://... or sqlite:///..."
    )
    with pytest.raises(ParamsError) as caught:
        address_of(PARAMS, variable)
    assert str(caught.value) == message
    assert f"MLflow: {message}" in status(project, variable).trouble


def test_runs_go_where_params_the_environment_or_dvc_says() -> None:
    assert address_of(PARAMS, {}) == "sqlite:///mlflow.db"
    assert address_of(PARAMS, {"MLFLOW_TRACKING_URI": "http://a"}) == "http://a"
    assert address_of(PARAMS, {"DVC_ROOT": str(Path().resolve())}) == "sqlite:///mlflow.db"
    assert address_of(PARAMS, {"DVC_ROOT": "/project"}) == "sqlite:////project/mlflow.db"
    assert address_of(PARAMS, {"DVC_ROOT": "/project", "MLFLOW_TRACKING_URI": "sqlite:///runs.db"}) == (
        "sqlite:////project/runs.db"
    )


def test_a_recipes_folder_uses_the_projects_database_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / ".harr/runs/smoke"
    recipe.mkdir(parents=True)
    for named in ("sqlite:///mlflow.db", f"sqlite:///{tmp_path}/mlflow.db", None):
        monkeypatch.chdir(tmp_path)
        if named:
            monkeypatch.setenv("MLFLOW_TRACKING_URI", named)
        else:
            monkeypatch.delenv("MLFLOW_TRACKING_URI")
        assert address_of(PARAMS) == "sqlite:///mlflow.db"
        variables = store_variables()
        monkeypatch.chdir(recipe)
        assert address_of(PARAMS, variables) == "sqlite:///../../../mlflow.db"
