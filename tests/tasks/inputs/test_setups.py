"""DVC as people set it up: link types, an emptied cache, experiments in their own folders, git worktrees."""

import hashlib
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from flows.stages import read_stages

pytestmark = pytest.mark.services
ROOT = Path(__file__).parents[3]
STAGE = """\
from harr.params import Params
from harr.services.mlflow_store import database_of
from tasks.tracking.client import address_of

params = Params.load()
with open({log!r}, "a") as log:
    print(params.train.optimizer.learning_rate, database_of(address_of(params)).resolve(), file=log)
print(params.train.optimizer.learning_rate)
"""
"""A stage that records its learning rate, and where its run would be recorded."""


@pytest.fixture
def project(workplace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with the first entry of dvc.yaml, and a stage that depends on training's parameters."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    log = tmp_path_factory.mktemp("log") / "runs"
    Path("stage.py").write_text(STAGE.format(log=str(log)))
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    train = {"cmd": f"{sys.executable} stage.py > out", "deps": ["data/inputs/train.json"], "outs": ["out"]}
    stages = {"inputs": stages["inputs"], "train": train}
    stages["inputs"]["cmd"] = stages["inputs"]["cmd"].replace("python", sys.executable, 1)
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}, sort_keys=False))
    Path(".gitignore").write_text("/data/\n/out\n/.harr/\n__pycache__/\n")
    run("git", "init", "--quiet")
    dvc("init", "--quiet")
    commit()
    return log


def run(*words: str, where: Path | None = None, works: bool = True) -> str:
    done = subprocess.run(words, cwd=where, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == works, done.stdout + done.stderr
    return done.stdout + done.stderr


def dvc(*words: str, where: Path | None = None, works: bool = True) -> str:
    return run(sys.executable, "-m", "dvc", *words, where=where, works=works)


def commit() -> None:
    run("git", "add", "--all")
    run("git", "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "--quiet", "--message", "x")


def edit(rate: float) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["train"]["optimizer"]["learning_rate"] = rate
    Path("params.yaml").write_text(yaml.safe_dump(params))


@pytest.mark.parametrize("link", ["hardlink", "symlink"])
def test_no_file_of_the_cache_is_written_through_a_link_and_what_is_kept_survives_gc(project: Path, link: str) -> None:
    dvc("config", "cache.type", link)
    dvc("repro")
    inputs = Path("data/inputs/train.json")
    assert (inputs.is_symlink(), inputs.stat().st_nlink) == (link == "symlink", 2 if link == "hardlink" else 1)
    edit(0.25)
    assert "train is stale: train.optimizer.learning_rate: " in dvc("repro")
    commit()
    dvc("gc", "--workspace", "--force")
    kept = [path for path in Path(".dvc/cache/files/md5").rglob("*") if path.is_file()]
    assert len(kept) == 11, "ten files of inputs, and out"
    for path in kept:
        assert hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() == path.parent.name + path.name
    Path("out").unlink()
    dvc("checkout")
    dvc("repro")
    assert Path("out").read_text() == "0.25\n" and len(project.read_text().splitlines()) == 2, "it ran once for a rate"
    assert [stage.state for stage in read_stages(Path())] == ["fresh"]


def test_where_no_file_can_be_cloned_reflink_ends_before_any_stage_and_has_a_second_choice(project: Path) -> None:
    dvc("config", "cache.type", "reflink")
    done = subprocess.run([sys.executable, "-m", "dvc", "repro"], capture_output=True, text=True, check=False)
    assert project.exists() == (done.returncode == 0)
    assert done.returncode == 0 or "No possible cache link types for" in done.stderr
    dvc("config", "cache.type", "reflink,copy")
    dvc("repro")
    assert [stage.state for stage in read_stages(Path())] == ["fresh"]


def test_experiments_elsewhere_are_recorded_at_home_and_leave_nothing_and_a_worktree_keeps_its_own(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dvc("repro")
    commit()
    name = "train.optimizer.learning_rate"
    dvc("exp", "run", "--temp", "-S", f"{name}=0.5")
    dvc("exp", "run", "--queue", "-S", f"{name}=0.125,0.25")
    dvc("queue", "start", "--jobs", "2")
    deadline = time.monotonic() + 240
    while "Running" in (state := dvc("queue", "status")) or "Queued" in state:
        assert time.monotonic() < deadline, state
        time.sleep(1)
    assert state.count("Success") == 2, state
    own, *others = (line.split() for line in project.read_text().splitlines())
    home = str(Path("mlflow.db").resolve())
    assert own[1] == home
    assert sorted(others) == [["0.125", home], ["0.25", home], ["0.5", home]]
    assert not list(Path(".dvc/tmp/exps").rglob("params.yaml")), "their folders are gone"
    assert not run("git", "status", "--porcelain") and [stage.state for stage in read_stages(Path())] == ["fresh"]
    tree = tmp_path_factory.mktemp("trees") / "tree"
    run("git", "worktree", "add", "--quiet", str(tree))
    dvc("repro", where=tree)
    assert project.read_text().splitlines()[-1] == f"{own[0]} {tree}/mlflow.db", "its runs stay with it"
    assert [stage.state for stage in read_stages(tree)] == ["fresh"]
