"""Every variation that the pages name, `dvc exp run -S KEY=VALUES`, is one that DVC takes and has valid values."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harr.params import Params

ROOT = Path(__file__).parents[1]
COPY = re.compile(r"`cp (recipes/[\w.]+\.yaml) params\.yaml`")
SET = re.compile(r"-S (\+*)([\w.]+)=(\S+)")


def variations() -> Iterator[tuple[str, str, str, str]]:
    """Yield file, marks (``++`` sets what the file does not name), key and value of all that the pages name.

    The file is the recipe that the same page copies before, or params.yaml.
    """
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        file = "params.yaml"
        for line in page.read_text().splitlines():
            if copied := COPY.search(line):
                file = copied[1]
            if "dvc exp run" in line:
                yield from (
                    (file, marks, key, value) for marks, key, of in SET.findall(line) for value in of.split(",")
                )


@pytest.mark.parametrize(("file", "marks", "key", "value"), list(variations()))
def test_a_variation_is_taken_and_valid(file: str, marks: str, key: str, value: str) -> None:
    values: Any = yaml.safe_load((ROOT / file).read_text())
    *sections, name = key.split(".")
    own = values
    for section in sections:
        own = own[section]
    assert marks == "++" or name in own, f"{file} does not name {key}: DVC refuses -S {key}, and takes -S ++{key}"
    own[name] = yaml.safe_load(value)
    Params.model_validate(values)


def test_the_pages_name_variations() -> None:
    assert {"pipeline.picks", "train.learning_rate"} <= {key for _, _, key, _ in variations()}
