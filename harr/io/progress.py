"""Progress bars with rate and ETA, quiet enough for a log file; and loops that can be stopped between two units."""

import sys
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from tqdm import tqdm

Unit = TypeVar("Unit")


class _Stop:
    """How this process is to leave once it was asked to (else None), and how many loops look for that."""

    leave: Callable[[], None] | None = None
    loops = 0


def bar(
    iterable: Iterable[Any] | None = None,
    *,
    total: int | None = None,
    desc: str,
    unit: str,
    initial: int = 0,
    shown: bool = True,
) -> "tqdm[Any]":
    """Return a bar on stderr, if it is ``shown``; where stderr is no terminal it prints a line every ten seconds at
    most."""
    interval = 0.2 if sys.stderr.isatty() else 10.0
    return tqdm(
        iterable,
        total=total,
        desc=desc,
        unit=unit,
        initial=initial,
        mininterval=interval,
        dynamic_ncols=True,
        disable=not shown,
    )


def stoppable(units: Iterable[Unit]) -> Generator[Unit]:
    """Yield units of work, each on disk before the next is asked for; leave between two where a stop was asked for.

    >>> list(stoppable("ab"))
    ['a', 'b']
    """
    _Stop.loops += 1
    try:
        for unit in units:
            leave()
            yield unit
    finally:
        _Stop.loops -= 1


def ask_to_stop(way: Callable[[], None]) -> bool:
    """Let the loop that runs call ``way`` after its unit; False where none runs or it was asked already."""
    waits = _Stop.loops > 0 and not _Stop.leave
    _Stop.leave = way
    return waits


def leave() -> None:
    """Leave as ``ask_to_stop`` said; nothing happens where no stop was asked for."""
    if _Stop.leave:
        _Stop.leave()


def stop_asked() -> bool:
    """Return whether this process was asked to stop: a unit that could keep more than it must should do so now."""
    return _Stop.leave is not None
