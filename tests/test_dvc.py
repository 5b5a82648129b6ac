"""The wiring of the stages: files, parameters, recipes, and code dependencies that are complete."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from texts import ROOT

from flows.files import unnamed
from harr.io.files import write_json
from harr.params import Params
from harr.params.schema import SCHEMA
from tasks.paths import HEADLINE

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


@cache
def imported(file: str) -> frozenset[str]:
    """Files of harr that a file imports."""
    modules = []
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    bases = [module.replace(".", "/") for module in modules if module.split(".")[0] == "harr"]
    paths = [path for base in bases for path in (f"{base}.py", f"{base}/__init__.py")]
    return frozenset(path for path in paths if (ROOT / path).exists())


def closure(starts: list[str]) -> set[str]:
    """Every file of harr that the given ones import, directly or not."""
    seen: set[str] = set()
    todo = list(starts)
    while todo:
        if (current := todo.pop()) not in seen:
            seen.add(current)
            todo += imported(current)
    return seen


def test_a_stage_has_its_stem_everywhere() -> None:
    for stage, spec in STAGES.items():
        assert spec["cmd"] == f"python -m flows.{stage}"
        assert (ROOT / "flows" / f"{stage}.py").exists() and (ROOT / "tasks" / f"{stage}.py").exists(), stage
        assert {param.split(".")[0] for param in spec["params"]} <= set(Params.model_fields), stage


def test_code_dependencies_exist_and_are_complete() -> None:
    found = []
    for stage, spec in STAGES.items():
        code = [dep for dep in spec["deps"] if dep.startswith("harr")]
        found += [
            f"dvc.yaml: stage {stage} depends on {dep}, which is not there" for dep in code if not (ROOT / dep).exists()
        ]
        # The stages before train load build.py for the encoder only; what it imports beside is not theirs.
        for path in sorted(closure(ENTRY[stage])):
            known = path.startswith(PLUMBING) or path.endswith("__init__.py") or path in code
            if not known and not any(path.startswith(f"{dep}/") for dep in code):
                found.append(f"dvc.yaml: stage {stage} lacks {path}")
    assert not found, "\n".join(found)


def test_what_a_stage_made_comes_back_with_its_parameters_but_for_a_model() -> None:
    """DVC's run cache brings no stage back that has an uncached output; metrics and plots may be uncached.

    The stage that makes a model registers it: out of the run cache it would come without a version.
    """
    for stage, spec in STAGES.items():
        options = [one for out in spec["outs"] if isinstance(out, dict) for one in out.values()]
        assert not [given for given in options if given.get("cache") is False], stage
    assert all(options.get("persist") for out in STAGES["merge"]["outs"] for options in out.values())


def test_a_stage_depends_on_what_shapes_it_and_on_nothing_else() -> None:
    def users(of: str, key: str = "deps") -> set[str]:
        return {stage for stage, spec in STAGES.items() if of in spec[key]}

    assert users("harr/train") == {"train", "arms"}
    assert users("harr/arms.py") == {"arms", "evaluate"} and users("harr/merge") == {"merge"}
    assert users("train", "params") == {"train", "arms"}, "a learning rate reruns training and what follows"
    assert {"evaluate", "merge"} <= users("models/adapter")


def test_every_recipe_is_valid_whole_and_names_its_schema() -> None:
    """An editor finds the schema by the first line, also of a recipe that was copied to params.yaml."""
    for path in (ROOT / "params.yaml", *sorted((ROOT / "recipes").glob("*.yaml"))):
        Params.load(path)
        text = path.read_text()
        assert not unnamed(yaml.safe_load(text), ENTRIES), f"{path.name} lacks what DVC would stop for"
        schema = text.partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
        assert schema == SCHEMA.name and (path.parent / schema).resolve() == ROOT / SCHEMA, path.name


def test_the_texts_count_the_stages() -> None:
    count = {8: "eight", 9: "nine", 10: "ten"}[len(STAGES)]
    assert f"all {count} stages" in (ROOT / "recipes/smoke.yaml").read_text()
    assert f"## The {count} stages" in (ROOT / "README.md").read_text()


@pytest.mark.services
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

    # Byte code differs between machines: with it in a folder's hash, a clone would run everything again.
    beside = [*dvc, "check-ignore", "harr/corpus/__pycache__/passages.cpython-311.pyc"]
    assert subprocess.run(beside, cwd=ROOT, capture_output=True, check=False).returncode == 0
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
