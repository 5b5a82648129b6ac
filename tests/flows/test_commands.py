"""Stages as commands: wrong input gives one clear line and changes nothing; Prefect is no condition."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from styled import sampled

from harr.io.files import read_json

MODULES = (
    "download",
    "embed",
    "index",
    "filter",
    "train",
    "evaluate",
    "merge",
    "cli",
    "lengths",
    "pipeline",
    "server",
    "up",
)
HEAVY = ("torch", "transformers", "sentence_transformers", "pymilvus", "great_expectations", "mlflow", "matplotlib")
NO_SERVER = {"PREFECT_API_URL": "http://127.0.0.1:9/api"}


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a module of flows in the current folder."""
    return subprocess.run(
        [sys.executable, "-m", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def change(section: str, **values: object) -> None:
    """Edit params.yaml."""
    params = yaml.safe_load(Path("params.yaml").read_text())
    params[section] = {**params[section], **values}
    Path("params.yaml").write_text(yaml.safe_dump(params))


def test_importing_the_flows_loads_nothing_heavy(workplace: Path) -> None:
    names = ", ".join(f"flows.{name}" for name in MODULES)
    code = f"import sys, {names}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("section", "values", "line"),
    [
        ("train", {"groupsize": 4}, "unknown parameter train.groupsize; did you mean group_size?"),
        ("retriever", {"k": 31}, "retriever: k = 31 passages cannot be chosen from a pool of 30"),
        ("train", {"steps": "many"}, "train.steps: should be a valid integer"),
    ],
)
def test_a_wrong_parameter_is_one_line_before_anything_starts(
    workplace: Path, section: str, values: dict[str, object], line: str
) -> None:
    change(section, **values)
    before = sorted(workplace.iterdir())
    done = run("flows.download")
    assert done.returncode == 1 and done.stdout == ""
    assert line in done.stderr and done.stderr.count("\n") == 1 and done.stderr.startswith("error: params.yaml: ")
    assert {path.name for path in set(workplace.iterdir()) - set(before)} <= {"prefect"}


def test_a_missing_corpus_file_is_one_line_and_leaves_no_data(workplace: Path) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    files = {name: ["nowhere.jsonl"] for name in ("passages", "train", "test")}
    Path("params.yaml").write_text(yaml.safe_dump({**params, "download": {"dataset": "jsonl", **files}}))
    done = run("flows.download", **NO_SERVER)
    told = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 1 and len(told) == 1 and "nowhere.jsonl" in told[0]
    assert "Traceback" not in done.stderr
    assert not Path("data/corpus").exists() and not Path("data/questions").exists()


def test_a_stage_runs_without_prefect_after_one_warning(workplace: Path) -> None:
    done = run("flows.download", **NO_SERVER)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("running without Prefect") == 1
    assert read_json(Path("metrics/download.json"))["passages"] == 400
    assert Path("gx/uncommitted/data_docs/local_site/index.html").exists()


def test_evaluating_a_file_needs_both_names_and_a_file(workplace: Path) -> None:
    assert "Missing option '--out'" in run("flows.evaluate", "--questions", "mine.jsonl").stderr
    done = run("flows.evaluate", "--questions", "mine.jsonl", "--out", "mine.json")
    assert (
        done.returncode == 1
        and done.stderr.startswith("error: --questions mine.jsonl is missing")
        and done.stderr.count("\n") == 1
    )
    done = run("flows.cli", "report")
    assert done.returncode == 1 and done.stderr == "error: metrics/evaluate.json is missing; run `dvc repro evaluate`\n"


def test_parts_of_several_machines_are_joined(workplace: Path) -> None:
    for number in range(2):
        sampled(Path(f"parts/{number}"), num_partitions=2, partition=number)
    done = run("flows.filter", "--join", "parts/0")
    assert done.returncode == 1 and done.stderr.startswith("error: part 1 of 2 is missing; sample it with ")
    assert done.stderr.count("\n") == 1 and not Path("data").exists()
    done = run("flows.filter", "--join", "parts/1", "parts/0")
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    figures = read_json(Path("metrics/filter.json"))
    told = "joined 2 parts: {tried:.0f} questions tried, {kept:.0f} to learn from, {pairs:.0f} pairs and"
    assert first == f"{told.format(**figures)} {figures['pairs_held_out']:.0f} held out" and figures["tried"] == 12
    assert last == "now: dvc commit -f filter" and figures["expected_preferences"] == 10
    lines = (Path("data/filtered/preferences.jsonl")).read_text().splitlines()
    assert len(lines) == figures["situations_that_teach"]
    assert Path("plots/filter.svg").exists() and Path("reports/preferences.html").exists()
    assert "--join FOLDER ..." in run("flows.filter", "--help").stdout
