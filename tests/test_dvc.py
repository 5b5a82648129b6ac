"""The wiring of the stages: files, parameters, recipes, and code dependencies that are complete."""

import ast
from functools import cache

import yaml
from texts import ROOT

from flows.files import unnamed
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


def test_a_stage_has_its_stem_everywhere_and_the_headline_is_the_only_metric() -> None:
    assert [one for spec in STAGES.values() for one in spec.get("metrics", [])] == [HEADLINE.as_posix()]
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
