"""The record that every check returns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from harr.errors import HarrError

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found there, and for a problem the exact fix."""

    level: Level
    subject: str
    found: str
    fix: str = ""


def ok(subject: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding("ok", subject, found)


def warn(subject: str, found: str, fix: str) -> Finding:
    """It works, but not as it should, or not for long."""
    return Finding("warn", subject, found, fix)


def fail(subject: str, found: str, fix: str) -> Finding:
    """The pipeline stops here, or gives wrong results."""
    return Finding("fail", subject, found, fix)


def broken(name: str, error: Exception) -> Finding:
    """What a check could not look at, in a line.

    >>> broken("stages", KeyError("path")).found
    "cannot be looked at (KeyError: 'path')"
    """
    told = " ".join(str(error).split())[:300]
    if isinstance(error, HarrError):
        return fail(name, told, "mend or remove the file that it names")
    return fail(name, f"cannot be looked at ({type(error).__name__}: {told})", "mend or remove what it reads")


def found_by(name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """What a check finds; where it breaks off, that, so that the other checks are made all the same."""
    try:
        return check()
    except Exception as error:
        return [broken(name, error)]


def size(count: float) -> str:
    """Bytes for a reader.

    >>> size(500), size(91_000_000), size(2.5e9)
    ('500 B', '91 MB', '2.5 GB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.{1 if unit == 'GB' else 0}f} {unit}"
    return f"{count:.0f} B"
