"""HTML pages from templates; every text is escaped, and a missing name is an error."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harr.evaluate.plays import compact


def render(template: str, folder: Path = Path(__file__).parent, /, **values: Any) -> str:
    """Render a template of this folder with these values."""
    pages = Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return pages.get_template(template).render(values)


def as_json(data: Any) -> Markup:
    """Return data as JSON that is safe inside HTML.

    >>> as_json({"a": "</script>"})
    Markup('{"a":"\\\\u003c/script\\\\u003e"}')
    """
    text = compact(data)
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return Markup(text)
