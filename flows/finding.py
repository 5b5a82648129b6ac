"""The record that every check returns, and the message for a check that could not be made."""

from dataclasses import dataclass
from typing import Literal

from harr.errors import HarrError, one_line
from tasks.runtime.errors import machine_fault

DEADLINE_SECONDS = 70.0
"""Seconds that one look may take: more than `dvc status` may."""
BUG = "if what it reads is whole, this is a bug of harr: report this line"


@dataclass(frozen=True)
class Finding:
    """The subject of a check, its state, and for a problem the exact fix."""

    level: Literal["ok", "warn", "fail"]
    subject: str
    found: str
    fix: str = ""


def ok(subject: str, state: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding("ok", subject, state)


def warn(subject: str, state: str, fix: str) -> Finding:
    """Return a finding on what works, but not as it should, or not for long."""
    return Finding("warn", subject, state, fix)


def fail(subject: str, state: str, fix: str) -> Finding:
    """Return a finding on what stops the pipeline or gives wrong results."""
    return Finding("fail", subject, state, fix)


def describe_failure(error: Exception) -> str:
    """Return in a line why something could not be checked, and what to do.

    >>> describe_failure(KeyError("path"))[:39]
    "cannot be looked at (KeyError: 'path');"
    """
    if isinstance(error, TimeoutError):
        return f"no answer in {DEADLINE_SECONDS:.0f} s; run this again"
    if isinstance(error, HarrError):
        return one_line(error, 500)
    return machine_fault(error) or f"cannot be looked at ({type(error).__name__}: {one_line(error, 300)}); {BUG}"
