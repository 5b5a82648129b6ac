"""The pipeline over the stages: recipes, order, and a stopped or broken DVC."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import yaml
from servers import until

from flows.pipeline import name_run, one_stage, pipeline, promotion
from flows.reproduce import StageFailed, reproduce
from flows.run import run_promotion, run_recipe
from flows.workspace import workspace as prepare
from harr.errors import ParamsError, PromotionRefused

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(workplace: Path) -> Path:
    """Code and recipes that may be changed, and a stage that DVC runs."""
    for name in ("harr", "tasks", "flows"):
        Path(name).unlink()
        Path(name).mkdir()
        Path(name, "a.py").write_text("1")
    Path("recipes").unlink()
    shutil.copytree(ROOT / "recipes", "recipes")
    Path("dvc.yaml").write_text("stages: {one: {cmd: echo 1 > one, deps: [harr/a.py], outs: [one]}}\n")
    return workplace


def init() -> None:
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet"], check=True)


def test_a_recipe_runs_in_a_folder_of_its_own_if_it_is_sound(place: Path) -> None:
    before = Path("params.yaml").read_text()
    Path("corpus").mkdir()
    with pytest.raises(ParamsError, match=r"no recipe 'smok'; there are: .*smoke"), prepare("smok"):
        pass
    with prepare("params.yaml") as here:
        assert here == Path()
    with prepare("harr_ppo") as made:
        pass
    assert (made / "params.yaml").read_text() == (ROOT / "recipes/harr_ppo.yaml").read_text()
    assert (made / "corpus").resolve() == place / "corpus"
    assert not (made / "flows").is_symlink() and not (made / "mlflow.db").exists()
    assert Path("params.yaml").read_text() == before
    Path("recipes/broken.yaml").write_text("seed: 0\n")
    with pytest.raises(ParamsError, match="download is missing"), prepare("broken"):
        pass
    written = (made / "flows/a.py").stat().st_mtime_ns
    Path("harr/a.py").write_text("2")
    Path("tasks/a.py").unlink()
    with prepare("harr_ppo") as again:
        assert again == made, "it follows the code"
    assert (made / "harr/a.py").read_text() == "2" and not (made / "tasks/a.py").exists()
    assert (made / "flows/a.py").stat().st_mtime_ns == written
    for name in ("../recipes/smoke", str(place / "recipes/smoke")):
        with pytest.raises(ParamsError, match="no recipe"), prepare(name):
            pass


def test_a_copied_project_reads_its_own_data(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A % in its path is no variable."""
    Path("corpus").mkdir()
    with prepare("smoke"):
        pass
    shutil.copytree(place, copy := tmp_path / "50%copy", symlinks=True)
    monkeypatch.chdir(copy)
    with prepare("smoke") as made:
        assert (made / "corpus").resolve() == copy / "corpus"


@pytest.mark.fault(10)
def test_a_run_keeps_its_recipe_to_its_end_and_a_second_one_waits(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    last_lines: list[str] = []

    def note(stage: str, found: Path) -> None:
        if stage != "inputs":
            last_lines.append((found / "params.yaml").read_text().splitlines()[-1])

    monkeypatch.setattr("flows.pipeline.bring_up_to_date", note)
    other = threading.Thread(target=one_stage.fn, args=("download", "smoke"))
    with prepare("smoke") as made:
        before = (made / "params.yaml").read_text()
        with Path("recipes/smoke.yaml").open("a") as recipe:
            recipe.write("# edited\n")
        other.start()
        said: list[str] = []
        assert until(lambda: said.append(capsys.readouterr().out) or "waits for its end" in "".join(said), pause=0.01)
        assert f"another run works in {made.resolve()}, pid {os.getpid()} on " in "".join(said)
        assert "(alive); this one waits for its end" in "".join(said)
        assert (made / "params.yaml").read_text() == before and not last_lines
    other.join(60)
    assert last_lines == ["# edited"]


def test_a_promotion_that_keeps_the_champion_is_complete(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = "tasks.registry.promote.outcome_of"
    monkeypatch.setattr(gate, lambda *_, **more: (True, "promoted: version 2"))
    assert promotion.fn() is None and "promoted: version 2" in capsys.readouterr().out
    monkeypatch.setattr(gate, lambda what, params, **more: (False, f"no {what}"))
    for name, instead in (("stages", list), ("keep_candidate", print)):
        monkeypatch.setattr(f"flows.run.{name}", instead)
    for state in (promotion.fn(), pipeline.fn(promote=True)):
        assert state and state.is_completed() and (state.name, state.message) == ("Kept", "kept: no promote")
    assert pipeline.fn() is None
    with pytest.raises(PromotionRefused, match="no rollback"):
        run_promotion("params.yaml", back=True)


def test_a_run_keeps_the_name_that_the_form_had(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rate 2e-4", "rate 2e-4 (smoke)"):  # the second time after a failed try
        run = SimpleNamespace(name=name, parameters={"recipe": "smoke"})
        monkeypatch.setattr("flows.pipeline.flow_run", run)
        assert name_run() == "rate 2e-4 (smoke)"


@pytest.mark.fault(31)
@pytest.mark.services
def test_dvc_runs_a_stage_in_a_recipe_s_folder_or_says_why_not(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An unpacked zip of the project is no git repository, and DVC says so."""
    shutil.copytree(ROOT / ".dvc", ".dvc", ignore=shutil.ignore_patterns("tmp", "cache"))
    with pytest.raises(StageFailed, match="stage one failed: exit 255; its message is above"):
        reproduce(["one"], Path(), "")
    assert "is not a git repository" in "".join(capfd.readouterr())
    Path(".dvc/config.local").write_text("[core]\n    no_scm = true\n")
    with prepare("smoke") as made:
        reproduce(["one"], made, "")
    assert (made / "one").read_text() == "1\n" and not Path("one").exists()
    assert list(Path(".dvc/cache").rglob("*")), "the cache is shared"
    Path("dvc.yaml").write_text("stages: {bad: {cmd: exit 3, outs: [bad]}}\n")
    with pytest.raises(
        StageFailed, match=r"stage bad failed: exit 255; its message is above; later stages did not run"
    ):
        reproduce(["bad"], Path(), "")
    Path("dvc.yaml").write_text("stages: {bad: {cmd: 'echo error: no room; exit 1', outs: [bad]}}\n")
    said: list[str] = []
    with pytest.raises(StageFailed, match="stage bad failed: no room; later stages did not run"):
        reproduce(["bad"], Path(), "", said.append)
    assert "error: no room" in said
    Path("dvc.yaml").write_text("stages: {good: {cmd: 'printf \"caf\\351\\n\"; echo 1 > good', outs: [good]}}\n")
    reproduce(["good"], Path(), "", said.append)
    assert "caf\N{REPLACEMENT CHARACTER}" in said and Path("good").exists(), "a line that is not UTF-8 stops nothing"


@pytest.mark.services
def test_stopping_the_pipeline_stops_the_stage(workplace: Path) -> None:
    """DVC runs a stage that sleeps; after SIGTERM to the pipeline, no process of either may remain."""
    init()
    Path("dvc.yaml").write_text("stages: {nap: {cmd: 'echo $PPID > pid; exec sleep 600', outs: [nap]}}\n")
    pipeline = subprocess.Popen([sys.executable, "-m", "flows.cli", "run"])
    assert until(lambda: Path("pid").exists() and Path("pid").read_text().strip())
    dvc = psutil.Process(int(Path("pid").read_text()))
    family = [dvc, *dvc.children(recursive=True)]
    pipeline.send_signal(signal.SIGTERM)
    assert pipeline.wait(timeout=30) == 143
    assert not psutil.wait_procs(family, timeout=10)[1]


def test_a_source_without_its_key_is_named_before_anything_starts(workplace: Path) -> None:
    recipe = yaml.safe_load((ROOT / "recipes/r_search_small.yaml").read_text())
    recipe["sources"]["News"] = {"kind": "exa", "server": {"urls": ["http://h"], "key_variable": "HARR_NO_KEY"}}
    Path("params.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.raises(ParamsError, match=r"sources\.News: no key for Exa; set the environment variable HARR_NO_KEY"):
        run_recipe("", promote=False)
