"""Progress bars with rate and ETA, quiet enough for a log file; and loops that can stop between two units."""

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeVar

from tqdm import tqdm

Unit = TypeVar("Unit")
BEAT_SECONDS = 1.0
LOG_SECONDS = 10.0
"""Maximum time between two draws of a bar on a terminal, and minimum time between two lines in a log."""


class _Stop:
    """How this process should leave if it was asked to (else None), and how many loops check for that."""

    leave: Callable[[], None] | None = None
    loops = 0


class Bar(tqdm):
    """A bar that is redrawn every second, even during a long unit, and ends as a line of text.

    If stderr is not a terminal, it only writes lines: at most one every ten seconds, and fewer the longer it takes.
    """

    monitor_interval = 0  # tqdm's own thread looks only every ten seconds

    def __init__(self, iterable: Iterable[Any] | None, **given: Any) -> None:
        """Take tqdm's arguments."""
        self.written_at, self.over, self.on_terminal = (
            time.monotonic(),
            threading.Event(),
            sys.stderr.isatty() and os.environ.get("TERM") != "dumb",
        )
        counted = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {speed}{postfix}]"
        form = counted if given["total"] or hasattr(iterable, "__len__") else "{desc}: {n_fmt} [{elapsed}, {speed}]"
        super().__init__(iterable, mininterval=0.2, dynamic_ncols=True, bar_format=form, **given)
        if not self.disable:
            threading.Thread(target=_beat, args=(weakref.ref(self), self.over), daemon=True).start()

    @property
    def format_dict(self) -> dict[str, Any]:
        """Return what tqdm shows, and ``speed``, the rate as text."""
        fields: dict[str, Any] = super().format_dict
        done, seconds = fields["n"] - fields["initial"], fields["elapsed"]
        return fields | {"speed": _speed(fields["rate"] or (done / seconds if seconds else 0.0), fields["unit"])}

    def display(self, msg: str | None = None, pos: int | None = None) -> Any:
        """Draw the bar if on a terminal."""
        return super().display(msg, pos) if self.on_terminal else None

    def clear(self, *given: Any, **named: Any) -> None:
        """Remove the bar for a line of text if on a terminal."""
        if self.on_terminal:
            super().clear(*given, **named)

    def beat(self) -> None:
        """Show the elapsed time; in a log only if a line is due."""
        now, seconds = time.monotonic(), self.format_dict["elapsed"]
        if self.on_terminal:
            self.refresh(nolock=True)
        elif now - self.written_at >= max(LOG_SECONDS, seconds / 10):
            self.written_at = now
            self.fp.write(f"{_line(self.format_dict)}\n")

    def close(self) -> None:
        """Replace the bar with a line of text."""
        if self.disable:
            return
        with self.get_lock():
            self.over.set()
        self.leave, fields = False, self.format_dict | {"rate": None}
        super().close()
        if fields["n"]:
            tqdm.write(_line(fields, ended=True), file=self.fp)


def _beat(bar: "weakref.ref[Bar]", over: threading.Event) -> None:
    while not over.wait(BEAT_SECONDS):
        with tqdm.get_lock():
            if over.is_set() or (live := bar()) is None:
                return
            live.beat()
            del live


def _line(fields: Mapping[str, Any], *, ended: bool = False) -> str:
    """Return a bar as text.

    >>> fields = {"prefix": "train", "n": 12, "initial": 0, "total": 64, "elapsed": 180.0, "unit": "step", "rate": None}
    >>> print(_line(fields))
    train: 12 of 64 steps in 03:00, 13:00 left, 15.0 s/step
    >>> print(_line(fields | {"n": 64, "postfix": "reward=0.5"}, ended=True))
    train: 64 steps in 03:00, 2.8 s/step, reward=0.5
    """
    n, total, seconds = fields["n"], fields["total"], fields["elapsed"]
    rate = fields["rate"] or ((n - fields["initial"]) / seconds if seconds else 0.0)
    whole = f" of {total:,}" if total and total != n else ""
    units = fields["unit"] + ("" if (total or n) == 1 else "s")
    left = f", {tqdm.format_interval((total - n) / rate)} left" if total and rate and not ended else ""
    more = f", {fields['postfix']}" if fields.get("postfix") else ""
    speed = f", {_speed(rate, fields['unit'])}" if rate else ""
    took = f"{tqdm.format_interval(seconds)}{left}{speed}"
    return f"{fields['prefix']}: {n:,}{whole} {units} in {took}{more}"


def _speed(rate: float, unit: str) -> str:
    """Return a rate in units per second, or in seconds per unit if that is below 1.

    >>> _speed(1234.5, "passage"), _speed(0.125, "step"), _speed(0.0, "step")
    ('1,234/s', '8.0 s/step', '? s/step')
    """
    if not rate:
        return f"? s/{unit}"
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:,.1f} s/{unit}"


def bar(
    iterable: Iterable[Any] | None = None,
    *,
    total: int | None = None,
    desc: str,
    unit: str,
    initial: int = 0,
    visible: bool = True,
) -> Bar:
    """Return a bar on stderr, shown if ``visible``; ``unit`` is singular. Close it or use ``with``.

    With `accelerate launch` only the main process shows it.
    """
    visible = visible and os.environ.get("RANK", "0") == "0"
    return Bar(iterable, total=total, desc=desc, unit=unit, initial=initial, disable=not visible)


def stoppable(units: Iterable[Unit]) -> Generator[Unit]:
    """Yield units of work, each on disk before the next is requested; leave between two if a stop was requested.

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
    """Let the running loop call ``way`` after its unit; return False if none runs or a stop was already requested."""
    waits = _Stop.loops > 0 and not _Stop.leave
    _Stop.leave = way
    return waits


def leave() -> None:
    """Leave as :func:`ask_to_stop` requested; do nothing if no stop was requested."""
    if _Stop.leave:
        _Stop.leave()


def should_stop() -> bool:
    """Return whether this process was asked to stop: a unit that may save early should do so now."""
    return _Stop.leave is not None
