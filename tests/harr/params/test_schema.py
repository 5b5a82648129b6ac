"""params.schema.json: what an editor shows of every parameter; and the page of them all."""

import json
import re
from typing import Any

from texts import ROOT

from harr.params.listing import PAGE
from harr.params.schema import SCHEMA, parameters_text, schema_text


def test_the_file_and_the_page_are_what_the_sections_say() -> None:
    schema, page = schema_text(), parameters_text()
    assert (ROOT / SCHEMA).read_text() == schema, "run `python -m harr.params.schema`"
    assert (ROOT / PAGE).read_text() == page, "run `python -m harr.params.schema`"
    sections = json.loads(schema)
    listed = set(re.findall(r"^ *- `(\w+)` \(", page, re.MULTILINE)) | set(sections["properties"])
    assert {name for part in sections["$defs"].values() for name in part["properties"]} <= listed


def test_every_parameter_has_a_sentence() -> None:
    schema = json.loads(schema_text())
    parts: dict[str, Any] = {"Params": schema, **schema["$defs"]}
    told = {part: spec.get("description", "") for part, spec in parts.items()}
    for part, spec in parts.items():
        told |= {f"{part}.{name}": field.get("description", "") for name, field in spec["properties"].items()}
    whole = re.compile(r"(?!(?:Of|So|As) )[A-Z].{18,}\.", re.DOTALL)
    found = [f"{name}: {text!r}" for name, text in told.items() if not whole.fullmatch(text)]
    assert len(told) > 500 and not found, "\n".join(found)
