"""A place of its own for every test of tasks and flows: an empty folder with the packages and a small recipe."""

import os
import shutil
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).parents[1]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one, with harr, tasks, flows and the smoke recipe as params.yaml."""
    for name in ("harr", "tasks", "flows", "recipes"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "recipes/smoke.yaml", tmp_path / "params.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    # MLflow keeps one store open per address and process, so each place needs an address of its own.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    for name in ("PREFECT_API_URL", "HARR_EXECUTION", "HARR_PARENT_TASK_RUN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database with its tables and nothing in them: making one takes longer than most tests."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def stored(workplace: Path, empty_store: Path) -> Path:
    """``workplace`` with an MLflow database of its own."""
    shutil.copy(empty_store, workplace / "mlflow.db")
    return workplace
