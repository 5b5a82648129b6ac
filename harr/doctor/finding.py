"""The record that every check returns."""

from dataclasses import dataclass
from typing import Literal

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


def size(count: float) -> str:
    """Bytes for a reader.

    >>> size(500), size(91_000_000), size(2.5e9)
    ('500 B', '91 MB', '2.5 GB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.{1 if unit == 'GB' else 0}f} {unit}"
    return f"{count:.0f} B"
