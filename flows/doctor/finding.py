"""The record that every check returns, and how checks are made side by side."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal, TypeVar

from harr.errors import HarrError, one_line
from tasks.runtime.errors import machine_fault

DEADLINE_SECONDS = 70.0
"""One check may take so long; it is above what `dvc status` may take."""
BUG = "if what it reads is whole, this is a bug of harr: report this line"
Value = TypeVar("Value")


@dataclass(frozen=True)
class Finding:
    """The subject of a check, its state, and for a problem the exact fix."""

    level: Literal["ok", "warn", "fail"]
    subject: str
    found: str
    fix: str = ""


def ok(subject: str, state: str) -> Finding:
    """Return that there is nothing to do."""
    return Finding("ok", subject, state)


def warn(subject: str, state: str, fix: str) -> Finding:
    """Return that it works, but not as it should, or not for long."""
    return Finding("warn", subject, state, fix)


def fail(subject: str, state: str, fix: str) -> Finding:
    """Return that the pipeline stops here, or gives wrong results."""
    return Finding("fail", subject, state, fix)


def describe_failure(name: str, error: Exception) -> Finding:
    """Return what kept a check from being made, in a line.

    >>> describe_failure("stages", KeyError("path")).found
    "cannot be looked at (KeyError: 'path')"
    >>> describe_failure("index", HarrError("manifest.json is damaged; dvc repro index")).fix
    'dvc repro index'
    """
    text = one_line(error, 500)
    if isinstance(error, TimeoutError):
        return warn(name, f"no answer in {DEADLINE_SECONDS:.0f} s", "run this again")
    if isinstance(error, HarrError) or (text := machine_fault(error)):
        message, _, fix = text.rpartition("; ")
        return fail(name, message or text, fix if message else "mend what it names")
    return fail(name, f"cannot be looked at ({type(error).__name__}: {one_line(error, 300)})", BUG)


def start_in_background(body: Callable[[], Value]) -> Future[Value]:
    """Start a function in a thread that never keeps the process from ending; its result or error comes later."""
    future: Future[Value] = Future()

    def run() -> None:
        try:
            future.set_result(body())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
