"""What keeps the repository in order: workflows that are valid, one version everywhere, and Pythons that we test."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import harr

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_one_of_github(path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_a_workflow_runs_what_there_is() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            for words in (step["run"].split() for step in job["steps"] if "run" in step):
                assert words[0] != "make" or set(words[1:]) <= targets, words
                assert not words[0].startswith(".ci/") or (ROOT / words[0]).stat().st_mode & 0o100, words


def test_the_version_is_the_same_everywhere() -> None:
    headings = re.findall(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == harr.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == harr.__version__


def test_every_python_that_we_name_is_tested() -> None:
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    assert named == jobs["fast"]["strategy"]["matrix"]["python"] and named[0] in PROJECT["requires-python"]


def test_the_changelog_is_one_for_users() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) <= 100
    assert not [line for line in lines if line.startswith("  ")], "an entry is one line"
