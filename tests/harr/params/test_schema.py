"""params.schema.json, which tells an editor about every parameter, and the page of all parameters."""

import json
import re

from texts import ROOT

from benchmarks.parameters import PAGE, SCHEMA, parameters_text, schema_text


def test_the_file_and_the_page_are_what_the_sections_say() -> None:
    schema, page = schema_text(), parameters_text()
    assert (ROOT / SCHEMA).read_text() == schema, "run `python -m benchmarks.parameters`"
    assert (ROOT / PAGE).read_text() == page, "run `python -m benchmarks.parameters`"
    sections = json.loads(schema)
    listed = set(re.findall(r"^ *- `(\w+)` \(", page, re.MULTILINE)) | set(sections["properties"])
    assert {name for part in sections["$defs"].values() for name in part["properties"]} <= listed
