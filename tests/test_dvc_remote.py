"""docs/dvc_remote.md: a clone gets everything pushed to a folder, nothing in it is stale, and it can promote."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient
from texts import ROOT


def run(place: Path, *words: str) -> str:
    """Return a command's output; it must succeed."""
    author = {f"GIT_{role}_{what}": "a@localhost" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = os.environ | author | {"PATH": path, "DVC_NO_ANALYTICS": "true"}
    done = subprocess.run(words, cwd=place, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.fault(28)
@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.skipif("HARR_FINISHED_RUN" not in os.environ, reason="needs a finished run of the smoke recipe")
def test_a_clone_registers_what_it_pulled_and_promotes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished, first, second = Path(os.environ["HARR_FINISHED_RUN"]), tmp_path / "first", tmp_path / "second"
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL", "HARR_EXECUTION"):
        monkeypatch.delenv(name, raising=False)
    stages = yaml.safe_load((finished / "dvc.yaml").read_text())["stages"].values()
    made = [one for stage in stages for kind in ("outs", "metrics", "plots") for one in stage.get(kind, ())]
    # what git has of a run, apart from the code
    small = [name for one in made if isinstance(one, dict) for name, how in one.items() if how.get("cache") is False]
    (added,) = re.findall(r"^git add (.+) &&", (ROOT / "docs/dvc_remote.md").read_text(), re.MULTILINE)
    assert {Path(name).parts[0] for name in small} <= {*added.split()}
    for place in (first, second):
        for name in (
            "harr",
            "tasks",
            "flows",
            "recipes",
            "dvc.yaml",
            "dvc.lock",
            "params.yaml",
            *small,
        ):  # git has them
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            copied = shutil.copytree if (finished / name).is_dir() else shutil.copy
            copied(finished / name, place / name)
        run(place, sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet")
    dvc = (sys.executable, "-m", "dvc")
    shutil.copytree(finished / ".dvc/cache", first / ".dvc/cache")
    remote = ("remote", "add", "--default", "shared", str(tmp_path / "remote"))
    run(first, *dvc, *remote)
    run(first, *dvc, "push", "--quiet")
    run(second, *dvc, *remote)
    run(second, *dvc, "pull", "--quiet")
    output = run(second, *dvc, "repro")
    # the first entry, which always does
    assert output.count("Running stage") <= 1 and "Running stage 'inputs'" in output
    harr = (sys.executable, "-m", "flows.cli")
    assert "version 1 (alias candidate)" in run(second, *harr, "record", "--register")
    done = subprocess.run(
        [*harr, "promote", "--arm", "trained"], cwd=second, capture_output=True, text=True, check=False
    )
    client = MlflowClient(f"sqlite:///{second}/mlflow.db")
    aliases = client.get_model_version("harr-smoke", "1").aliases
    refused = "the alias stays where it is" in done.stderr  # so small a world may not earn it
    assert ("champion" in aliases) == (done.returncode == 0) != refused, done.stdout + done.stderr
