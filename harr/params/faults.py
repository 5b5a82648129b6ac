"""Faults of params.yaml in the user's words: the full key, what is wrong, and what was meant."""

import difflib
import re
import reprlib
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from harr.errors import ParamsError, printable
from harr.params.fields import SECRET, Section

SomeSection = TypeVar("SomeSection", bound=Section)


class _Repr(reprlib.Repr):
    def repr_str(self, value: str, level: int) -> str:
        """Return what was found, without what may be a password in an address."""
        return super().repr_str(re.sub(r".*:.*@", "***@", value, flags=re.DOTALL), level)


_REPR = _Repr()
_REPR.maxstring = _REPR.maxother = 100


def read_section(section: type[SomeSection], values: Mapping[str, Any], place: str) -> SomeSection:
    """Return values of params.yaml as the class of a section; ``place`` says where they are.

    Raises:
        ParamsError: there is a wrong key or value; one line per fault.
    """
    try:
        return section.model_validate(dict(values))
    except ValidationError as error:
        messages = (f"{place}: {describe_fault(fault, section)}" for fault in error.errors())
        raise ParamsError("\n".join(messages)) from None


def describe_fault(fault: Any, root: type[Any]) -> str:
    """Return one fault of pydantic in the user's words: dotted key, what is wrong, what was meant."""
    keys: list[str] = []
    options: list[type[Any]] = [root]
    loc = [part for part in fault["loc"] if not str(part).startswith("(")]  # tags, such as those of evaluate.arms
    for depth, part in enumerate(loc):
        holders = [option for option in options if part in option.model_fields]
        tagged = [option for option in options if part in _tags(option)]
        last = depth == len(loc) - 1
        if tagged and len(options) > 1:  # which member of a union it is
            options = tagged
            continue
        keys.append(str(part))
        if holders and not last:  # otherwise the user gave the name
            options = [cls for holder in holders for cls in _sections(holder.model_fields[str(part)].annotation)]
    name = ".".join(keys)
    if fault["type"] == "extra_forbidden":
        names = list(dict.fromkeys(field for option in options for field in option.model_fields))
        near = difflib.get_close_matches(keys[-1], names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(names)}"
        return _shorten(f"unknown parameter {name}; {hint}")
    if fault["type"] == "missing":
        return _shorten(f"{name} is missing")
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    hidden = fault["type"] == SECRET or isinstance(fault["input"], dict)
    value = "" if hidden else f" (found {_REPR.repr(fault['input'])})"
    return _shorten((f"{name}: " if name else "") + message) + value


def _shorten(text: str) -> str:
    """Return a text on one line, with long names and values of the user cut.

    >>> _shorten("unknown parameter a\\nb"), len(_shorten("a" * 5000)), len(_shorten("a " * 5000))
    ('unknown parameter a b', 103, 803)
    """
    words = [word if len(word) <= 100 else f"{word[:100]}..." for word in printable(text).split()]
    line = " ".join(words).encode("utf-8", "replace").decode()
    return line if len(line) <= 800 else f"{line[:800]}..."


def _sections(annotation: Any) -> list[type[Any]]:
    """Return the section classes an annotation names: itself, or the members of a union or mapping."""
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return [annotation]
    return [cls for member in get_args(annotation) for cls in _sections(member)]


def _tags(section: type[Any]) -> set[Any]:
    """Return the words by which a union picks this section, such as ``grpo`` for ``method: grpo``."""
    return {tag for field in section.model_fields.values() for tag in get_args(field.annotation)}
