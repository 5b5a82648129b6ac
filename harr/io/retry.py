"""Retry calls, with growing pauses, while a server may come back."""

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from harr.errors import ServiceUnavailable

T = TypeVar("T")


def unavailable(error: Exception) -> bool:
    """Return whether a server was unavailable and may answer later."""
    return isinstance(error, ServiceUnavailable)


def is_transient(status: int) -> bool:
    """Return whether a server with this HTTP status may answer differently later.

    >>> [is_transient(status) for status in (404, 429, 503)]
    [False, True, True]
    """
    return status in (408, 409, 429) or status >= 500


def retry(
    call: Callable[[], T],
    seconds: float,
    again: Callable[[Exception], bool] = unavailable,
    *,
    first: float = 0.5,
    longest: float = 8.0,
    tell: Callable[[Any, int], object] = lambda error, number: None,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Return what ``call`` returns; retry it for ``seconds`` after errors for which ``again`` is true.

    Pauses double from ``first`` to ``longest`` seconds. Each is randomly shortened by up to half, which spreads
    callers out, but lasts at least the error's ``wait_seconds``, if any. ``tell`` is called before a pause with the
    error and the number of calls so far. A ``sleep`` that returns true ends the retries.

    >>> replies = iter([ServiceUnavailable("no answer"), "yes"])
    >>> def call():
    ...     if isinstance(reply := next(replies), Exception):
    ...         raise reply
    ...     return reply
    >>> retry(call, 10.0, tell=lambda error, number: print(number, error), sleep=lambda pause: None)
    1 no answer
    'yes'
    """
    deadline, pause, number = time.monotonic() + seconds, first, 1
    while True:
        try:
            return call()
        except Exception as error:
            rest = max(pause * random.uniform(0.5, 1.0), getattr(error, "wait_seconds", 0.0))
            if not again(error) or time.monotonic() + rest > deadline:
                raise
            tell(error, number)
            if sleep(rest):
                raise
        pause, number = min(2 * pause, longest), number + 1
