"""The pipeline over the stages: recipes, order, and a stopped or broken DVC."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.pipeline import StageFailed, mend_lock, reproduce, stages, use_recipe
from harr.errors import ParamsError

ROOT = Path(__file__).parents[2]


def test_stages_come_in_the_order_of_dvc_yaml(workplace: Path) -> None:
    shutil.copy(ROOT / "dvc.yaml", workplace)
    assert stages() == ["download", "embed", "index", "generator", "filter", "train", "arms", "evaluate", "merge"]


def test_a_recipe_becomes_params_yaml_only_if_it_is_sound(workplace: Path) -> None:
    before = Path("params.yaml").read_text()
    with pytest.raises(ParamsError, match=r"no recipe 'smok'; there are: .*smoke"):
        use_recipe("smok")
    use_recipe("")
    assert Path("params.yaml").read_text() == before
    Path("recipes").unlink()
    Path("recipes").mkdir()
    Path("recipes/broken.yaml").write_text("seed: 0\n")
    with pytest.raises(ParamsError, match="download is missing"):
        use_recipe("broken")
    assert Path("params.yaml").read_text() == before
    Path("recipes/other.yaml").write_text(before.replace("seed: 0", "seed: 7", 1))
    use_recipe("other")
    assert "seed: 7" in Path("params.yaml").read_text()


def test_an_empty_lock_of_a_killed_dvc_is_removed_and_a_used_one_kept(workplace: Path) -> None:
    lock = Path(".dvc/tmp/rwlock")
    mend_lock()
    lock.parent.mkdir(parents=True)
    lock.write_text("")
    mend_lock()
    assert not lock.exists()
    lock.write_text('{"read": {}}')
    mend_lock()
    assert lock.exists()


def test_a_failed_stage_stops_the_pipeline(workplace: Path) -> None:
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet"], check=True)
    Path("dvc.yaml").write_text("stages: {bad: {cmd: exit 3, outs: [bad]}}\n")
    with pytest.raises(StageFailed, match=r"stage bad failed \(exit 255\); .* later stages did not run"):
        reproduce.fn("bad")


def test_stopping_the_pipeline_stops_the_stage(workplace: Path) -> None:
    """DVC runs a stage that sleeps; the pipeline gets SIGTERM; nothing may be left of either."""
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet"], check=True)
    Path("dvc.yaml").write_text("stages: {nap: {cmd: 'echo $PPID > pid; exec sleep 600', outs: [nap]}}\n")
    environment = {**os.environ, "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    pipeline = subprocess.Popen([sys.executable, "-m", "flows.pipeline"], env=environment)
    deadline = time.monotonic() + 60
    while not Path("pid").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    dvc = int(Path("pid").read_text())
    pipeline.send_signal(signal.SIGTERM)
    assert pipeline.wait(timeout=30) == 143
    with pytest.raises(ProcessLookupError):
        os.killpg(os.getpgid(dvc), 0)
