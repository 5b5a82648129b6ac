"""What keeps the repository in order: workflows that run what exists, one version, Pythons that we test."""

import re
import tomllib

import yaml
from test_docs import TARGETS
from texts import ROOT, name

import harr

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = {
    path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / ".github/workflows").glob("*.yml")
}


def test_workflows_run_what_there_is() -> None:
    jobs = [(path, job) for path, flow in WORKFLOWS.items() for job in flow["jobs"].values()]
    lines = [(path, step["run"].split()) for path, job in jobs for step in job["steps"] if "run" in step]
    found = [f"{name(path)}: {words}" for path, words in lines if words[0] == "make" and not {*words[1:]} <= TARGETS]
    scripts = [(path, words) for path, words in lines if words[0].startswith(".ci/")]
    found += [f"{name(path)}: {words}" for path, words in scripts if not (ROOT / words[0]).stat().st_mode & 0o100]
    assert lines and not found, found


def test_the_version_and_the_pythons_are_the_same_everywhere() -> None:
    headings = re.findall(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    assert headings[0] == cited == harr.__version__
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    jobs = WORKFLOWS[ROOT / ".github/workflows/ci.yml"]["jobs"]
    assert named == jobs["fast"]["strategy"]["matrix"]["python"] and named[0] in PROJECT["requires-python"]
