"""What a run says of its code, in a project that is a folder of a larger repository."""

import subprocess
from pathlib import Path

import pytest

from tasks.tracking.fingerprints import revisions


def test_what_a_run_writes_is_no_edit_of_the_code_in_a_folder_of_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "metrics").mkdir(parents=True)
    for name in ("dvc.lock", "metrics/evaluate.json", "params.yaml"):
        (project / name).write_text("1")
    for words in ("init", "add .", "-c user.name=a -c user.email=a@b commit -m start"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.chdir(project)
    for name, edited in (("dvc.lock", "false"), ("metrics/evaluate.json", "false"), ("params.yaml", "true")):
        (project / name).write_text("2")
        assert revisions()["harr.edited"] == edited
