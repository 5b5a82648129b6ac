"""A registry version becomes a folder: the registered one, whole, or a line says why not."""

import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harr.errors import DamagedFile, ModelError, ParamsError, ServiceUnavailable
from harr.io.files import digest_of, publish, write_json
from harr.services import model_registry
from harr.services.model_registry import LOADABLE, download, fetch, open_registry, registry_address, resolve

NAME = "harr smoke"


def model(text: str) -> Path:
    """Publish a model folder as stage merge does."""
    write_json(Path("work/model/query/config.json"), {"text": text})
    publish(Path("work/model"), Path("models/retriever"))
    return Path("models/retriever")


def register(client: Any, folder: Path, path: str = f"retriever/{LOADABLE}") -> str:
    """Store a folder with a run, and register it as the champion version; return its number."""
    known = client.get_experiment_by_name("harr")
    place = known.experiment_id if known else client.create_experiment("harr", str(Path("mlruns/1").resolve()))
    run = client.create_run(place).info
    client.log_artifacts(run.run_id, str(folder), path)
    if client.search_registered_models() == []:
        client.create_registered_model(NAME)
    tags = {"model": digest_of(folder), "kind": "retriever"}
    version = client.create_model_version(NAME, f"{run.artifact_uri}/retriever", run.run_id, tags).version
    client.set_registered_model_alias(NAME, "champion", version)
    return str(version)


@pytest.fixture
def client(stored: Path) -> Any:
    """A client of an empty registry."""
    return open_registry(Path())


def test_an_alias_is_followed_and_a_version_is_fetched_once(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = register(client, model("first"))
    was = resolve(client, f"models:/{NAME}@champion")
    assert (was.name, was.number, was.uri) == (NAME, first, f"models:/{NAME}/{first}")
    register(client, model("second"), "retriever")  # as versions were stored before they had an MLmodel
    now = resolve(client, f"models:/{NAME}@champion")
    assert resolve(client, was.uri) == was != now
    folders = [fetch(client, one, Path("cache")) for one in (was, now)]
    assert [digest_of(folder) for folder in folders] == [was.digest, now.digest]
    with monkeypatch.context() as patch:
        patch.setattr(model_registry, "download", None)
        assert [fetch(client, one, Path("cache")) for one in (was, now)] == folders
    assert not list(Path("cache").glob(".*"))
    (folders[1] / "query/config.json").write_text("{}")  # a damaged copy is downloaded again
    assert digest_of(fetch(client, now, Path("cache"))) == now.digest


@pytest.mark.fault(42)
@pytest.mark.parametrize("change", ["changed", "missing", "added"])
def test_what_is_damaged_in_the_artifact_store_is_refused_and_what_was_there_stays(client: Any, change: str) -> None:
    register(client, model("first"))
    download(client, resolve(client, f"models:/{NAME}@champion"), Path("pulled"))
    was = digest_of(Path("pulled"))
    register(client, model("second"))
    version = resolve(client, f"models:/{NAME}@champion")
    kept = Path(client.get_run(version.run).info.artifact_uri) / "retriever" / LOADABLE / "query/config.json"
    {
        "changed": lambda: kept.write_text("{}"),
        "missing": lambda: kept.unlink(),
        "added": lambda: kept.with_name("more.json").write_text("{}"),
    }[change]()
    with pytest.raises(
        DamagedFile,
        match=r"models:/harr smoke/2 is damaged in MLflow's artifact store \(its files are not what was registered",
    ):
        download(client, version, Path("pulled"))
    assert digest_of(Path("pulled")) == was and not list(Path().glob(".*.tmp"))


@pytest.mark.fault(42)
def test_code_in_the_artifact_store_and_a_model_that_it_lost_are_refused(client: Any) -> None:
    """MLflow says the same of a lost model, of one that never existed, and of a full disk here."""
    register(client, model("first"))
    version = resolve(client, f"models:/{NAME}@champion")
    kept = Path(client.get_run(version.run).info.artifact_uri) / "retriever" / LOADABLE
    (kept / "modeling.py").write_text("print(1)")
    with pytest.raises(ModelError, match=r"modeling\.py is a file of another kind"):
        download(client, version, Path("pulled"))
    (store,) = Path("mlruns").rglob("artifacts")
    shutil.rmtree(store)
    lost = rf"does not copy retriever of run {version.run} to .* and does not say why"
    with pytest.raises(ServiceUnavailable, match=lost):
        download(client, version, Path("pulled"))
    assert not Path("pulled").exists()


@pytest.mark.fault(42)
def test_what_the_registry_does_not_have_is_one_line(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for uri in ("models:/", "models:/a@", "models:/a/latest", "runs:/a/b", "models:/../b@champion"):
        with pytest.raises(ParamsError, match="no registered model; expected models:/NAME@ALIAS or models:/NAME/N"):
            resolve(client, uri)
    for uri in (f"models:/{NAME}@champion", f"models:/{NAME}/3"):
        with pytest.raises(ModelError, match=rf"the registry has no {uri} .*`harr promote` gives it the alias"):
            resolve(client, uri)
    client.create_registered_model(NAME)
    client.create_model_version(NAME, "mlruns/0")
    with pytest.raises(
        ModelError, match=r"version 1 of harr smoke was not registered by harr \(no run, or no tag model or kind\)"
    ):
        resolve(client, f"models:/{NAME}/1")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    Path("empty").mkdir()
    with pytest.raises(ModelError, match=r"no MLflow registry is known in .*empty; set MLFLOW_TRACKING_URI"):
        registry_address(Path("empty"))
    assert registry_address(Path()) == f"sqlite:///{Path('mlflow.db').resolve()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "ftp://me:secret@db/x")
    with pytest.raises(ParamsError, match=r"^ftp://db/x is no address of an MLflow registry"):
        open_registry(Path())


@pytest.mark.fault(24)
@pytest.mark.parametrize("fault", ["damaged", "of another version"])
def test_a_database_that_cannot_be_opened_is_one_line(
    fault: str, stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(stored / "mlflow.db", tmp_path / "other.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other.db")
    if fault == "damaged":
        (tmp_path / "other.db").write_bytes(b"garbage " * 1000)
    else:
        with closing(sqlite3.connect(tmp_path / "other.db")) as store, store:
            store.execute("UPDATE alembic_version SET version_num = 'cc1f77228345'")
    with pytest.raises(ServiceUnavailable, match=r"^MLflow does not give sqlite:///\S*/other.db: [^\n]+$"):
        resolve(open_registry(Path()), f"models:/{NAME}@champion")


def test_a_version_that_many_load_at_once_is_downloaded_once(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    register(client, model("first"))
    version, downloads = resolve(client, f"models:/{NAME}@champion"), []

    def download_slowly(*arguments: Any) -> None:
        downloads.append(arguments)
        time.sleep(0.1)
        download(*arguments)

    monkeypatch.setattr(model_registry, "download", download_slowly)
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: fetch(client, version, Path("cache")), range(4)))
    assert len(folders) == len(downloads) == 1


@pytest.mark.fault(43)
def test_a_moved_projects_version_is_found(client: Any, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(client, model("first"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.delenv("_MLFLOW_SERVER_ARTIFACT_ROOT", raising=False)
    moved = stored / "moved"
    moved.mkdir()
    for name in ("mlflow.db", "mlruns"):
        (stored / name).rename(moved / name)
    monkeypatch.chdir(moved)
    moved_client = open_registry(Path())
    assert fetch(moved_client, resolve(moved_client, f"models:/{NAME}@champion"), Path("cache")).is_dir()
