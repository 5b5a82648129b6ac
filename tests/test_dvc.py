"""The wiring of the stages: files, parameters, recipes, and code dependencies that are complete."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from harr.io.files import write_json
from harr.params import Params
from tasks.paths import HEADLINE

ROOT = Path(__file__).parents[1]
ENTRIES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
STAGES = {name: spec for name, spec in ENTRIES.items() if not spec.get("always_changed")}
"""All but the look at local files (flows/files.py)."""
METHODS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "harr/train").glob("*.py"))
ENTRY = {
    "download": ["harr/datasets/download.py"],
    "embed": ["harr/embed/shards.py", "harr/embed/encoder.py"],
    "index": ["harr/index/build.py"],
    "generator": ["harr/generator/small_lm.py", "harr/generator/warmstart.py"],
    "filter": ["harr/filter.py", "harr/preferences/collect.py", "harr/builders/setup.py"],
    "train": [*METHODS, "harr/builders/setup.py"],
    "arms": [*METHODS, "harr/builders/setup.py"],
    "evaluate": [
        "harr/evaluate/play.py",
        "harr/report/examples.py",
        "harr/report/plots.py",
        "harr/preferences/few_shot.py",
        "harr/report/page.py",
        "harr/preferences/collect.py",
        "harr/builders/setup.py",
    ],
    "merge": ["harr/merge/retriever.py", "harr/merge/llm.py", "harr/embed/encoder.py"],
}
PLUMBING = tuple(
    f"harr/{name}" for name in "__init__.py arms.py errors.py types.py params/ io/ services/ builders/".split()
)
"""Shapes no result, so that a change here reruns nothing: nouns, what reads parameters (DVC watches their values), what
writes files whole, what asks a server until it answers, and what chooses by parameters. The table of the arms shapes
the two stages that play more than `full`, and no other (see the test below)."""


def closure(starts: list[str]) -> set[str]:
    """Every file of harr that the given ones import, directly or not."""
    seen: set[str] = set()
    todo = list(starts)
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        for node in ast.walk(ast.parse((ROOT / current).read_text())):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("harr"):
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names if alias.name.startswith("harr")]
            for module in modules:
                base = module.replace(".", "/")
                todo += [path for path in (f"{base}.py", f"{base}/__init__.py") if (ROOT / path).exists()]
    return seen


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_has_its_stem_everywhere(stage: str) -> None:
    assert STAGES[stage]["cmd"] == f"python -m flows.{stage}"
    assert (ROOT / "flows" / f"{stage}.py").exists() and (ROOT / "tasks" / f"{stage}.py").exists()
    sections = {param.split(".")[0] for param in STAGES[stage]["params"]}
    assert sections <= set(Params.model_fields)


@pytest.mark.parametrize("stage", STAGES)
def test_code_dependencies_exist_and_are_complete(stage: str) -> None:
    code = [dep for dep in STAGES[stage]["deps"] if dep.startswith("harr")]
    assert all((ROOT / dep).exists() for dep in code)
    # The stages before train load build.py for the encoder only; what it imports beside is not theirs.
    needed = {path for path in closure(ENTRY[stage]) if not path.startswith(PLUMBING)}
    missing = {
        path
        for path in needed
        if not any(path == dep or path.startswith(f"{dep}/") for dep in code) and not path.endswith("__init__.py")
    }
    assert not missing, f"dvc.yaml: stage {stage} lacks {sorted(missing)}"


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_stage_made_comes_back_with_its_parameters(stage: str) -> None:
    """DVC's run cache brings no stage back that has an uncached output; metrics and plots may be uncached."""
    options = [one for out in STAGES[stage]["outs"] if isinstance(out, dict) for one in out.values()]
    assert not [given for given in options if given.get("cache") is False]


def test_a_model_is_never_taken_from_the_run_cache() -> None:
    """The stage that makes it registers it: out of DVC's run cache it would come without a version."""
    assert all(options.get("persist") for out in STAGES["merge"]["outs"] for options in out.values())


def test_only_train_and_later_depend_on_the_learning_code() -> None:
    users = {stage for stage in STAGES if "harr/train" in STAGES[stage]["deps"]}
    assert users == {"train", "arms"}
    assert "harr/merge" in STAGES["merge"]["deps"]
    assert not any("harr/merge" in STAGES[stage]["deps"] for stage in STAGES if stage != "merge")


def test_only_the_stages_that_play_arms_depend_on_their_table() -> None:
    assert {stage for stage in STAGES if "harr/arms.py" in STAGES[stage]["deps"]} == {"arms", "evaluate"}


def test_a_learning_rate_reruns_train_and_what_follows() -> None:
    reads = {stage for stage, spec in STAGES.items() if "train" in spec["params"]}
    assert reads == {"train", "arms"}
    assert "models/adapter" in STAGES["evaluate"]["deps"] and "models/adapter" in STAGES["merge"]["deps"]


@pytest.mark.parametrize(
    "path", [ROOT / "params.yaml", *sorted((ROOT / "recipes").glob("*.yaml"))], ids=lambda p: p.stem
)
def test_every_recipe_is_valid_and_holds_all_that_the_stages_read(path: Path) -> None:
    Params.load(path)
    values = yaml.safe_load(path.read_text())
    for name in {name for spec in STAGES.values() for name in spec["params"]}:
        found = values
        for part in name.split("."):
            assert part in found, f"{path.name} lacks {name}; DVC would stop at the stage that reads it"
            found = found[part]


def test_the_texts_count_the_stages() -> None:
    count = {8: "eight", 9: "nine", 10: "ten"}[len(STAGES)]
    assert f"all {count} stages" in (ROOT / "recipes/smoke.yaml").read_text()
    assert f"## The {count} stages" in (ROOT / "README.md").read_text()


def test_the_headline_is_the_only_metric_and_its_tables_fit(tmp_path: Path) -> None:
    (metric,) = [name for spec in STAGES.values() for one in spec.get("metrics", []) for name in one]
    assert metric == HEADLINE.as_posix()
    for name in ("dvc.yaml", "params.yaml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    figures = {"answer_f1": 0.717, "low": 0.674, "high": 0.758, "gain": 0.277, "gain_low": 0.205, "gain_high": 0.351}
    commit = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet", "--all", "-m", "x"]
    dvc = [sys.executable, "-m", "dvc"]

    def shown(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert max(map(len, done.stdout.split("\n"))) <= 100, done.stdout
        return done.stdout

    shown("git", "init", "--quiet")
    shown(*dvc, "init", "--quiet")
    kept = {"path": "data/files.json", "hash": "md5", "md5": "0" * 32, "size": 2}
    lock = {"schema": "2.0", "stages": {"download": {"cmd": ENTRIES["download"]["cmd"], "deps": [kept]}}}
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump(lock))
    for seed in (0, 1):
        write_json(tmp_path / HEADLINE, figures | {"answer_f1": 0.7 + seed / 100, "n": 1000, "runs": 1})
        text = (ROOT / "params.yaml").read_text()
        (tmp_path / "params.yaml").write_text(text.replace("\nseed: 0", f"\nseed: {seed}", 1))
        shown("git", "add", ".")
        shown(*commit)
    assert shown(*dvc, "metrics", "show").split()[:9] == ["Path", *sorted([*figures, "n", "runs"])]
    table = shown(*dvc, "exp", "show", "-n", "2", "--only-changed", "--drop", ".*/", "--csv")
    columns = table.split("\n")[0].split(",")
    assert "seed" in shown(*dvc, "params", "diff", "HEAD~1")
    assert "dvc_plots/index.html" in shown(*dvc, "plots", "show")
    assert columns[-2:] == ["answer_f1", "seed"] and len(columns) <= 12


def test_what_python_writes_beside_the_code_is_no_dependency() -> None:
    """Byte code differs between machines: with it in a folder's hash, a clone would run everything again."""
    command = [sys.executable, "-m", "dvc", "check-ignore", "harr/corpus/__pycache__/passages.cpython-311.pyc"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0
