"""A project folder as a user has it: git, DVC and params.yaml, and nothing run yet."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """dvc.yaml, params.yaml and DVC's settings in a git repository with one commit."""
    shutil.copy(ROOT / "recipes/smoke.yaml", tmp_path / "params.yaml")
    shutil.copy(ROOT / "dvc.yaml", tmp_path / "dvc.yaml")
    (tmp_path / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc/config", tmp_path / ".dvc/config")
    for words in ("init", "add .", "-c user.name=a -c user.email=a@b commit -m start"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path
