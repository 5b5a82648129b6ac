"""An application installs only the core: it has few packages, and they suffice to load a retriever and search."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[4]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def resolved(lines: list[str]) -> set[str]:
    """Return the names of everything that the requirements bring, as installed here."""
    found: set[str] = set()
    todo = [Requirement(line) for line in lines]
    while todo:
        one = todo.pop()
        name = canonicalize_name(one.name)
        if name in found:
            continue
        found.add(name)
        asked = [Requirement(line) for line in distribution(name).requires or ()]
        environments = [{"extra": extra} for extra in (one.extras or {""})]
        todo += [each for each in asked if each.marker is None or any(map(each.marker.evaluate, environments))]
    return found


def test_the_core_is_small() -> None:
    core = resolved(PROJECT["dependencies"])
    assert len(core) <= 60, sorted(core)
    assert resolved(EXTRAS["lite"]) - core == {"milvus-lite", "faiss-cpu"}


ALONE = """
import sys
import harr
from harr.errors import MissingExtra
try:
    with harr.Retriever.load(sys.argv[1], index=sys.argv[2]) as retriever:
        print([passage.id for passage in retriever.session("Who founded Acme?").search()])
except MissingExtra as error:
    print(error)
"""


def site_of(names: set[str], folder: Path) -> Path:
    """Return a folder with only these packages, linked to where they are installed."""
    folder.mkdir()
    for one in map(distribution, names):
        for top in {path.parts[0] for path in one.files or ()} - {".."}:
            if not (folder / top).exists():
                (folder / top).symlink_to(str(one.locate_file(top)))
    return folder


@pytest.mark.services
@pytest.mark.parametrize(
    ("extras", "output"),
    [
        (["lite"], "['"),
        ([], "package milvus_lite is not installed; run `pip install 'harr[lite]'`"),
    ],
)
def test_a_retriever_is_loaded_and_asked_with_the_core_alone(
    project: Path, tmp_path: Path, extras: list[str], output: str
) -> None:
    """The index is Milvus Lite's, and the retriever weighs a plug-in's links; without Lite there is one line."""
    brought = [line for extra in extras for line in EXTRAS[extra]]
    site = site_of(resolved([*PROJECT["dependencies"], *brought, "ahocorasick-rs"]), tmp_path / "site")
    (site / "harr_links").symlink_to(ROOT / "plugins/links/harr_links")
    assert (site / "torch").exists() and not (site / "datasets").exists() and not (site / "peft").exists()
    (site / "harr").symlink_to(ROOT / "harr")
    command = [sys.executable, "-S", "-c", ALONE, str(project / "models/retriever"), str(project)]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert output in done.stdout
