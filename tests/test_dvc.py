"""The wiring of the stages: files, inputs and recipes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from texts import ROOT

from benchmarks.parameters import SCHEMA
from harr.io.files import write_json
from harr.params import Params
from tasks.inputs.stages import READS
from tasks.paths import HEADLINE
from tasks.sentences import SENTENCES

ENTRIES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
STAGES = {name: spec for name, spec in ENTRIES.items() if not spec.get("always_changed")}
"""All but the first entry, which writes their inputs (tasks/inputs)."""


def test_a_stage_has_its_stem_everywhere() -> None:
    for stage, spec in STAGES.items():
        assert spec["cmd"] == f"python -m tasks.{stage}"
        assert (ROOT / "tasks" / f"{stage}.py").exists(), stage
        assert spec["deps"][0] == f"data/inputs/{stage}.json", "parameters and code stand there"


def test_what_a_stage_made_comes_back_with_its_parameters_but_for_a_model() -> None:
    """DVC's run cache restores no stage with an uncached output; metrics and plots may be uncached.

    The stage that makes a model registers it: restored from the run cache, it would lack a version.
    """
    for stage, spec in STAGES.items():
        options = [one for out in spec["outs"] if isinstance(out, dict) for one in out.values()]
        assert not [given for given in options if given.get("cache") is False], stage
    assert all(options.get("persist") for out in STAGES["merge"]["outs"] for options in out.values())


def test_the_stages_are_those_whose_inputs_are_written() -> None:
    assert list(STAGES) == list(READS) == list(SENTENCES)
    assert [next(iter(out)) for out in ENTRIES["inputs"]["outs"]] == [f"data/inputs/{stage}.json" for stage in READS]
    known = Params.model_json_schema()["properties"]
    assert not {name.partition(".")[0] for names in READS.values() for name in names} - set(known)


def test_every_recipe_is_valid_whole_and_names_its_schema() -> None:
    """An editor finds the schema by the first line, even in a recipe copied to params.yaml."""
    for path in (ROOT / "params.yaml", *sorted((ROOT / "recipes").glob("*.yaml"))):
        Params.load(path)
        text = path.read_text()
        schema = text.partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
        assert schema == SCHEMA.name and (path.parent / schema).resolve() == ROOT / SCHEMA, path.name


def test_every_recipe_says_which_plug_ins_to_install() -> None:
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        text = path.read_text()
        used = set(re.findall(r"\bharr_(\w+)[.:]\w", re.sub(r"#.*", "", text)))
        named = {name for words in re.findall(r"harr\[([\w,]+)\]", text) for name in words.split(",")}
        assert used <= named, path.name


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
        rows = [line for line in done.stdout.split("\n") if not line.startswith("file:")]  # of the temporary folder
        assert max(map(len, rows)) <= 100, done.stdout
        return done.stdout

    shown("git", "init", "--quiet")
    shown(*dvc, "init", "--quiet")
    kept = {"path": "data/inputs/download.json", "hash": "md5", "md5": "0" * 32, "size": 2}
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
