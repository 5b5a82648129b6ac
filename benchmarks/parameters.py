"""The JSON schema of params.yaml, for editors, and the page of all parameters, generated from it.

`python -m benchmarks.parameters` writes params.schema.json and docs/parameters.md.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from harr.io.files import write_text
from harr.params import Params

SCHEMA, PAGE = Path("params.schema.json"), Path("docs/parameters.md")
WIDTH = 100
HEAD = """\
# Parameters

`python -m benchmarks.parameters` writes this page from the classes in `harr/params/`; do not edit it.

Every section of `params.yaml` is below. In brackets stand type and default; a parameter without a
default must be given. Where a section knows several kinds, one parameter says which it is, and the
others go with that kind; what several kinds have stands once. Editors that read
`params.schema.json` complete and explain the same.
"""
SIMPLE = {"boolean": "true or false", "integer": "integer", "number": "number", "string": "text", "null": "null"}
BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
Spec = Mapping[str, Any]


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


def listing(schema: Spec) -> str:
    """Return the page: a heading per section and kind, an item per parameter, no line over 100 characters."""
    lines = [HEAD]
    for name, spec in schema["properties"].items():
        lines += [f"## {name}", ""]
        record, kinds = _record(spec, schema), _kinds(spec)
        if record or kinds:
            lines += _prose(spec.get("description") or (record and record.get("description")) or "")
        lines += [*(_items(record, schema) if record else () if kinds else _item(name, spec, schema)), ""]
        lines += _kinds_items(name, kinds, schema)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _kinds_items(section: str, kinds: Mapping[str, Sequence[str]], schema: Spec) -> Iterator[str]:
    """Yield once what the kinds of a section have in common, then a heading for each kind."""
    items = {
        kind: {
            name: tuple(_item(name, spec, schema, 0, schema["$defs"][kind].get("required", ())))
            for name, spec in schema["$defs"][kind].get("properties", {}).items()
        }
        for kind in kinds
    }
    counts = Counter(item for names in items.values() for item in names.values())
    shared = [item for item, count in counts.items() if count > 1]
    if shared:
        yield from (f"### {section}: what several kinds have", "", *(line for item in shared for line in item), "")
    for kind, users in kinds.items():
        yield from (f"### {section}: {', '.join(users)}", "", *_prose(schema["$defs"][kind].get("description", "")))
        yield from (line for item in items[kind].values() if item not in shared for line in item)
        also = ", ".join(f"`{name}`" for name, item in items[kind].items() if item in shared)
        yield from ("", *(_prose(f"And, as above: {also}.") if also else ()))


def _prose(text: str) -> list[str]:
    return [*wrap(plain(text), WIDTH, break_long_words=False, break_on_hyphens=False), ""] if text else []


def plain(text: str) -> str:
    """Return a docstring as Markdown.

    >>> plain("Name of ``TERMS``, or <name>.")
    'Name of `TERMS`, or `<name>`.'
    """
    return re.sub(r"(?<!`)<([\w/.-]+)>(?!`)", r"`<\1>`", text.replace("``", "`"))


def _record(spec: Any, schema: Spec) -> Spec | None:
    """Return the class of a parameter, or of its items; None if there is no class, or a choice of several."""
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        return next((inner for part in spec if (inner := _record(part, schema))), None)
    if not isinstance(spec, Mapping) or "discriminator" in spec:
        return None
    if "$ref" in spec:
        record: Spec = schema["$defs"][spec["$ref"].rpartition("/")[2]]
        return record if "properties" in record else None
    return _record([spec.get(place, ()) for place in ("anyOf", "oneOf", "items", "additionalProperties")], schema)


def _kinds(spec: Spec) -> dict[str, list[str]]:
    """Return the classes of a section, and for each the values that choose it."""
    spec = spec.get("additionalProperties", spec)
    mapping = spec.get("discriminator", {}).get("mapping", {})
    kinds: dict[str, list[str]] = {option["$ref"].rpartition("/")[2]: [] for option in spec.get("oneOf", ())}
    for value, path in mapping.items():
        kinds[path.rpartition("/")[2]].append(value)
    return kinds


def _items(record: Spec, schema: Spec, depth: int = 0) -> Iterator[str]:
    for name, spec in record.get("properties", {}).items():
        yield from _item(name, spec, schema, depth, record.get("required", ()))


def _item(name: str, spec: Spec, schema: Spec, depth: int = 0, required: Sequence[str] = ()) -> Iterator[str]:
    pad = "    " * depth
    default = "" if name in required or "default" not in spec else f"; default {_value(spec['default'])}"
    text = f"`{name}` ({_type(spec, schema)}{default})."
    text = f"{text} {plain(spec['description'])}" if spec.get("description") else text
    yield from wrap(
        text,
        WIDTH,
        initial_indent=f"{pad}- ",
        subsequent_indent=f"{pad}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    if depth == 0 and (inner := _record(spec, schema)):
        yield from _items(inner, schema, depth + 1)


def _value(default: Any) -> str:
    """Return a default as written in params.yaml.

    >>> _value(True), _value(None), _value([]), _value("dense"), _value({"rank": 32, "alpha": 64})
    ('true', 'null', 'empty', '`dense`', '`rank: 32, alpha: 64`')
    """
    if isinstance(default, bool) or default is None:
        return {True: "true", False: "false", None: "null"}[default]
    if default in ("", [], {}):
        return "empty"
    if isinstance(default, dict):
        return f"`{', '.join(f'{key}: {value}' for key, value in default.items())}`".replace("None", "null")
    if isinstance(default, list):
        return f"`{', '.join(map(str, default))}`"
    return f"`{default}`" if isinstance(default, str) else f"{default:g}" if default < 1e6 else str(default)


def _type(spec: Spec, schema: Spec) -> str:
    """Return in words which values a parameter takes.

    >>> _type({"type": "integer", "minimum": 1}, {}), _type({"enum": ["a", "b"], "type": "string"}, {})
    ('integer, at least 1', '`a` or `b`')
    """
    if "const" in spec:
        return f"`{spec['const']}`"
    if "enum" in spec:
        *most, last = [f"`{value}`" for value in spec["enum"]]
        return f"{', '.join(most)} or {last}" if most else last
    if "$ref" in spec:
        definition = schema["$defs"][spec["$ref"].rpartition("/")[2]]
        return "section" if "properties" in definition else _type(definition, schema)
    if options := spec.get("anyOf") or spec.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(option, schema) for option in options))
    if spec.get("type") == "array":
        inner = spec.get("items") or {}
        return f"list of {_type(inner, schema)}" if inner else "list"
    if spec.get("type") == "object":
        return "names and values"
    words = [f"{word} {spec[bound]:g}" for bound, word in BOUNDS.items() if bound in spec]
    return ", ".join([SIMPLE.get(spec.get("type", ""), "any value"), *words])


if __name__ == "__main__":
    write_text(SCHEMA, schema_text())
    write_text(PAGE, parameters_text())
