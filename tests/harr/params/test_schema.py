"""params.schema.json: what an editor shows of every parameter; and the page of them all."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harr.params.listing import PAGE
from harr.params.schema import SCHEMA, parameters_text, schema_text

ROOT = Path(__file__).parents[3]
PARTS: dict[str, Any] = {"Params": json.loads(schema_text()), **json.loads(schema_text())["$defs"]}
DESCRIBED = {
    "Params": PARTS["Params"]["description"],
    **{
        f"{part}.{name}": field.get("description", "")
        for part, schema in PARTS.items()
        for name, field in schema["properties"].items()
    },
    **{part: schema.get("description", "") for part, schema in PARTS.items()},
}


def test_the_file_is_what_the_sections_say() -> None:
    assert (ROOT / SCHEMA).read_text() == schema_text(), "run `python -m harr.params.schema`"


def test_the_page_of_all_parameters_is_what_the_sections_say() -> None:
    page = parameters_text()
    assert (ROOT / PAGE).read_text() == page, "run `python -m harr.params.schema`"
    listed = set(re.findall(r"^ *- `(\w+)` \(", page, re.MULTILINE))
    assert {name for part in PARTS.values() for name in part["properties"]} <= listed | set(
        PARTS["Params"]["properties"]
    )


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_parameter_has_a_sentence(name: str) -> None:
    text = DESCRIBED[name]
    assert len(text) >= 20 and text[0].isupper() and text.endswith("."), text
    assert text.split()[0] not in ("Of", "So", "As"), text


@pytest.mark.parametrize(
    "path", [ROOT / "params.yaml", *sorted((ROOT / "recipes").glob("*.yaml"))], ids=lambda p: p.stem
)
def test_an_editor_finds_the_schema(path: Path) -> None:
    first = path.read_text().partition("\n")[0]
    assert first.startswith("# yaml-language-server: $schema=")
    # the same line in both places, so that a recipe that was copied to params.yaml finds it, too
    assert first.partition("=")[2] == SCHEMA.name and (path.parent / SCHEMA.name).resolve() == ROOT / SCHEMA
