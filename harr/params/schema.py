"""The JSON schema of params.yaml, for editors, and the page of all parameters.

`python -m harr.params.schema` writes params.schema.json and docs/parameters.md.
"""

import json
from pathlib import Path
from typing import Any

from harr.io.files import write_text
from harr.params import Params
from harr.params.listing import PAGE, listing

SCHEMA = Path("params.schema.json")


def schema_text() -> str:
    """Return the schema of all parameters; their descriptions are the docstrings of the section classes."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Params.model_json_schema()}
    return json.dumps(_on_one_line(schema), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def parameters_text() -> str:
    """Return docs/parameters.md."""
    return listing(_on_one_line(Params.model_json_schema()))


def _on_one_line(value: Any) -> Any:
    """Join the lines of all descriptions.

    >>> _on_one_line({"seed": {"description": "Seed of\\nall.", "default": "a\\nb"}})
    {'seed': {'description': 'Seed of all.', 'default': 'a\\nb'}}
    """
    if isinstance(value, list):
        return [_on_one_line(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: " ".join(item.split()) if name == "description" and isinstance(item, str) else _on_one_line(item)
        for name, item in value.items()
    }


if __name__ == "__main__":
    write_text(SCHEMA, schema_text())
    write_text(PAGE, parameters_text())
