"""A runner of processes, and a project's folder."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Ended = subprocess.CompletedProcess[str]


@pytest.fixture
def program() -> Callable[..., Ended]:
    """A function that runs Python with words (`-m tasks.train`, `-c ...`) in the current folder or another."""

    def run(*words: str, cwd: Path | None = None, **environment: str) -> Ended:
        own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
        command = [sys.executable, *words]
        return subprocess.run(
            command, cwd=cwd, env=os.environ | own, capture_output=True, text=True, timeout=280, check=False
        )

    return run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git repository with dvc.yaml, params.yaml and DVC's settings in one commit."""
    shutil.copy(ROOT / "recipes/smoke.yaml", tmp_path / "params.yaml")
    shutil.copy(ROOT / "dvc.yaml", tmp_path / "dvc.yaml")
    (tmp_path / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc/config", tmp_path / ".dvc/config")
    for words in ("init", "add .", "-c user.name=a -c user.email=a@b commit -m start"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path
