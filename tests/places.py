"""The current folder for tests of tasks and flows."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def furnish(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty folder the current one, with harr, tasks, flows and the smoke recipe as params.yaml."""
    for name in ("harr", "tasks", "flows", "recipes"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "recipes/smoke.yaml", folder / "params.yaml")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PREFECT_HOME", str(folder / "prefect"))
    # MLflow opens one store per address and process, so each place needs its own address.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    for name in ("PREFECT_API_URL", "HARR_EXECUTION", "HARR_RUNNER"):
        monkeypatch.delenv(name, raising=False)
    return folder
