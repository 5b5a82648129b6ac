"""A copied or moved checkout keeps its artifacts next to its own mlflow.db, and writes to no other one."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from harr.io.files import digest_of
from harr.params import Params
from harr.services.mlflow_store import client_of, foreign_roots
from tasks.tracking.client import open_client
from tasks.tracking.run import tracked_run


def reported(params: Params, name: str) -> str:
    """Store a file with a run; return the folder where MLflow has it."""
    Path(name).write_text(name)
    with tracked_run("train", params) as run:
        run.artifact(Path(name))
    return str(open_client(params).get_run(run.run_id).info.artifact_uri)


@pytest.fixture
def old(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a run and a version."""
    monkeypatch.setenv("HARR_EXECUTION", "one")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.delenv("_MLFLOW_SERVER_ARTIFACT_ROOT", raising=False)
    old = stored / "old"
    old.mkdir()
    for name in ("mlflow.db", "params.yaml"):
        (stored / name).rename(old / name)
    monkeypatch.chdir(old)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{old}/mlflow.db")
    place = reported(Params.load(), "first.txt")
    assert place.startswith(f"{old}/mlruns/")
    client = open_client(Params.load())
    client.create_registered_model("m")
    client.create_model_version("m", f"{place}/retriever", place.split("/")[-2])
    return old


@pytest.mark.fault(43)
@pytest.mark.parametrize("how", ["copied", "moved"])
def test_artifacts_go_where_the_checkout_is(
    old: Path, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new = old.with_name("new")
    if how == "copied":
        shutil.copytree(old, new, symlinks=True)
    else:
        old.rename(new)
    before = digest_of(old / "mlruns") if old.exists() else ""
    monkeypatch.chdir(new)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{new}/mlflow.db")
    capsys.readouterr()
    assert reported(Params.load(), "second.txt").startswith(f"{new}/mlruns/")
    message = capsys.readouterr().err
    assert message.count("was copied or moved: its artifacts are in ") == 1 and f"not in {old}/mlruns\n" in message
    client = open_client(Params.load())
    for run in client.search_runs(["1"], "tags.`harr.stage` = 'train'"):
        (file,) = client.list_artifacts(run.info.run_id)
        assert Path(client.download_artifacts(run.info.run_id, file.path)).read_text() == file.path
    assert client.get_model_version("m", "1").source.startswith(f"{new}/mlruns/1/")
    with closing(sqlite3.connect(new / "mlflow.db")) as store:
        assert not [line for line in store.iterdump() if f"{old}/" in line]
    if old.exists():
        assert digest_of(old / "mlruns") == before
    assert capsys.readouterr().err == "", "said once"


def test_a_place_that_a_person_chose_stays(old: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another disk for artifacts: it exists, and no checkout lies next to it."""
    disk = tmp_path / "disk/mlruns"
    disk.mkdir(parents=True)
    MlflowClient().create_experiment("mine", artifact_location=f"{disk}/7")
    MlflowClient().create_experiment("bucket", artifact_location="s3://models/mlruns/8")
    client_of(f"sqlite:///{old}/mlflow.db")
    assert MlflowClient().get_experiment_by_name("mine").artifact_location == f"{disk}/7"
    assert foreign_roots(old / "mlflow.db") == []
    monkeypatch.chdir(tmp_path)  # a store elsewhere, with artifacts below the current folder
    moved = old.with_name("new")
    old.rename(moved)
    client_of(f"sqlite:///{moved}/mlflow.db")
    assert foreign_roots(moved / "mlflow.db") == [f"{old}/mlruns"]
