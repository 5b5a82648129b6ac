"""Every variation that the pages name, `dvc exp run -S KEY=VALUES`, is accepted by DVC and has valid values."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from dvc.utils.hydra import apply_overrides, get_hydra_sweeps

from harr.params import Params

ROOT = Path(__file__).parents[1]
COPY = re.compile(r"cp (recipes/[\w.]+\.yaml) params\.yaml")


def variations() -> Iterator[tuple[str, list[str]]]:
    """Yield file and settings of every run that the pages name; several values of a key are several runs.

    The file is the recipe that the page copies beforehand, or params.yaml.
    """
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        file = "params.yaml"
        for line in page.read_text().splitlines():
            if copied := COPY.search(line):
                file = copied[1]
            if "dvc exp run" in line:
                words = shlex.split(line.partition("dvc exp run")[2].partition("`")[0], comments=True)
                asked = [words[place + 1] for place, word in enumerate(words) if word == "-S"]
                yield from ((file, run["params.yaml"]) for run in get_hydra_sweeps({"params.yaml": asked}))


def test_a_variation_is_taken_and_valid(tmp_path: Path) -> None:
    """DVC refuses a key that the file does not contain, unless ``++`` precedes it."""
    path, named = tmp_path / "params.yaml", set()
    for file, asked in variations():
        shutil.copy(ROOT / file, path)
        apply_overrides(path, asked)
        Params.load(path)
        named |= {setting.strip("+").partition("=")[0] for setting in asked}
    assert {"pipeline.picks", "train.optimizer.learning_rate"} <= named, "the pages name variations"
