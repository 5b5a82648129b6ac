"""docs/dvc_remote.md: what was pushed to a folder is whole in a clone, and nothing there is stale."""

import os
import subprocess
import sys
from pathlib import Path

PIPELINE = """stages:
  train:
    cmd: python make.py
    deps: [make.py]
    outs: [models/retriever]
"""
MAKE = (
    "from pathlib import Path; Path('models/retriever').mkdir(parents=True); Path('models/retriever/w').write_text('7')"
)


def run(place: Path, *words: str) -> str:
    """What a command says; it must go well."""
    author = {f"GIT_{role}_{what}": "a@localhost" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = os.environ | author | {"PATH": path, "DVC_NO_ANALYTICS": "true"}
    done = subprocess.run(words, cwd=place, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_clone_pulls_what_was_pushed_and_nothing_is_stale(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    (first / "dvc.yaml").write_text(PIPELINE)
    (first / "make.py").write_text(MAKE)
    dvc = (sys.executable, "-m", "dvc")
    run(first, "git", "init", "--quiet")
    run(first, *dvc, "init", "--quiet")
    run(first, *dvc, "repro", "--quiet")
    run(first, *dvc, "remote", "add", "--default", "shared", str(tmp_path / "remote"))
    run(first, *dvc, "push", "--quiet")
    run(first, "git", "add", "--all")
    run(first, "git", "commit", "--quiet", "--message=results")
    run(tmp_path, "git", "clone", "--quiet", str(first), str(second))
    assert not (second / "models/retriever").exists()
    run(second, *dvc, "pull", "--quiet")
    assert (second / "models/retriever/w").read_text() == "7"
    assert "up to date" in run(second, *dvc, "status")
