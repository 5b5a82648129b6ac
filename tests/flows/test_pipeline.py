"""The pipeline over the stages: recipes, order, and a stopped or broken DVC."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from flows.pipeline import StageFailed, promotion, reproduce, run_recipe, stages
from flows.runtime.artifacts import _links
from flows.runtime.flow_runs import records, working
from flows.runtime.workspace import workspace as prepare
from harr.errors import ParamsError
from harr.params import Params

ROOT = Path(__file__).parents[2]


def test_stages_come_in_the_order_of_dvc_yaml(workplace: Path) -> None:
    shutil.copy(ROOT / "dvc.yaml", workplace)
    names = ["files", "download", "embed", "index", "generator", "filter", "train", "arms", "evaluate", "merge"]
    assert stages() == names


def test_a_recipe_runs_in_a_folder_of_its_own_if_it_is_sound(workplace: Path) -> None:
    shutil.copy(ROOT / "dvc.yaml", workplace)
    before = Path("params.yaml").read_text()
    Path("corpus").mkdir()
    with pytest.raises(ParamsError, match=r"no recipe 'smok'; there are: .*smoke"), prepare("smok"):
        pass
    with prepare("params.yaml") as place:
        assert place == Path()
    with prepare("harr_ppo") as place:
        pass
    assert (place / "params.yaml").read_text() == (ROOT / "recipes/harr_ppo.yaml").read_text()
    assert (place / "corpus").resolve() == workplace / "corpus"
    assert not (place / "flows").is_symlink() and not (place / "mlflow.db").exists()
    assert Path("params.yaml").read_text() == before
    Path("recipes").unlink()
    Path("recipes").mkdir()
    Path("recipes/broken.yaml").write_text("seed: 0\n")
    with pytest.raises(ParamsError, match="download is missing"), prepare("broken"):
        pass


def test_a_recipe_s_folder_follows_the_code_and_shares_the_cache(workplace: Path) -> None:
    for name in ("harr", "tasks", "flows"):
        Path(name).unlink()
        Path(name).mkdir()
        Path(name, "a.py").write_text("1")
    Path("dvc.yaml").write_text("stages: {one: {cmd: echo 1 > one, deps: [harr/a.py], outs: [one]}}\n")
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet"], check=True)
    with prepare("smoke") as place:
        pass
    made = (place / "flows/a.py").stat().st_mtime_ns
    Path("harr/a.py").write_text("2")
    Path("tasks/a.py").unlink()
    with prepare("smoke") as again:
        assert again == place
    assert (place / "harr/a.py").read_text() == "2" and not (place / "tasks/a.py").exists()
    assert (place / "flows/a.py").stat().st_mtime_ns == made
    reproduce.fn("one", place)
    assert (place / "one").read_text() == "1\n" and not Path("one").exists()
    assert list(Path(".dvc/cache").rglob("*"))


def test_a_run_keeps_its_recipe_to_its_end_whatever_another_one_asks_for(workplace: Path) -> None:
    """The second waits for the first, and does not change its folder meanwhile."""
    Path("recipes").unlink()
    shutil.copytree(ROOT / "recipes", "recipes")
    shutil.copy(ROOT / "dvc.yaml", workplace)
    told = "(place / 'params.yaml').read_text().splitlines()[-1]"
    code = f"from flows.runtime.workspace import workspace\nwith workspace('smoke') as place: print({told})"
    with prepare("smoke") as place:
        before = (place / "params.yaml").read_text()
        with Path("recipes/smoke.yaml").open("a") as recipe:
            recipe.write("# edited\n")
        second = subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, text=True)
        assert second.stdout and "this one waits for its end" in second.stdout.readline()
        assert (place / "params.yaml").read_text() == before
    assert second.communicate(timeout=60)[0] == "# edited\n"


def test_a_worker_s_run_is_noted_while_it_waits_for_the_folder(workplace: Path) -> None:
    """`harr down` and ``sweep`` know it before its first stage."""
    shutil.copy(ROOT / "dvc.yaml", workplace)
    # a shell that starts the tests in its background leaves SIGINT ignored
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heard}; from flows.pipeline import one_stage; one_stage.fn('download')"
    environment = os.environ | {"PREFECT__RUNTIME__FLOW_RUN__ID": "waits"}
    command = [sys.executable, "-u", "-c", code]
    with prepare(""), subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert "another run works in" in process.stdout.readline()
        assert [(told["flow_run"], told["pid"]) for told in working()] == [("waits", process.pid)]
        process.send_signal(signal.SIGINT)
    assert not list(records().glob("*"))


def test_a_promotion_is_noted(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", "promotes")
    monkeypatch.setattr(
        "tasks.registry.promote.outcome_of",
        lambda what, params, **more: (True, f"at work: {[one['flow_run'] for one in working()]}"),
    )
    promotion.fn()
    assert "at work: ['promotes']" in capsys.readouterr().out and working() == []


def test_a_project_without_git_is_told_what_to_do(workplace: Path) -> None:
    """A zip of the project, unpacked: DVC says only that it is no repository."""
    Path("dvc.yaml").write_text("stages: {one: {cmd: echo 1 > one, outs: [one]}}\n")
    shutil.copytree(ROOT / ".dvc", ".dvc", ignore=shutil.ignore_patterns("tmp", "cache"), dirs_exist_ok=True)
    with pytest.raises(StageFailed, match=r"DVC wants a git repository: git init, or `dvc config --local core\.no_scm"):
        reproduce.fn("one")
    Path(".dvc/config.local").write_text("[core]\n    no_scm = true\n")
    reproduce.fn("one")
    assert Path("one").exists()


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
    pipeline = subprocess.Popen([sys.executable, "-m", "flows.cli", "run"], env=environment)
    deadline = time.monotonic() + 60
    while not Path("pid").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    dvc = int(Path("pid").read_text())
    pipeline.send_signal(signal.SIGTERM)
    assert pipeline.wait(timeout=30) == 143
    with pytest.raises(ProcessLookupError):
        os.killpg(os.getpgid(dvc), 0)


def test_an_mlflow_server_that_is_away_or_knows_nothing_costs_the_run_no_more_than_its_link(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose stages are all done would fail in its last line."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    params = Params.load()
    away = params.model_copy(update={"tracking": params.tracking.model_copy(update={"uri": "http://127.0.0.1:9"})})
    up = {"MLflow": "http://127.0.0.1:5000"}
    assert _links(away, {}, Path()) == _links(params, up, Path()) == "## Where to look"


def test_a_source_without_its_key_is_named_before_anything_starts(workplace: Path) -> None:
    path, root = workplace / "params.yaml", Path(__file__).parents[2]
    recipe = yaml.safe_load((root / "recipes/r_search_small.yaml").read_text())
    recipe["sources"]["News"] = {"kind": "exa", "key_variable": "HARR_NO_KEY"}
    path.write_text(yaml.safe_dump(recipe))
    with pytest.raises(ParamsError, match=r"sources\.News: no key for Exa; set the environment variable HARR_NO_KEY"):
        run_recipe("", promote=False)
