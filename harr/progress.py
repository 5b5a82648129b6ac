"""Progress bars with rate and ETA, quiet enough for a log file."""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm


def bar(
    iterable: Iterable[Any] | None = None,
    *,
    total: int | None = None,
    desc: str,
    unit: str,
    initial: int = 0,
    shown: bool = True,
) -> "tqdm[Any]":
    """A bar on stderr, if it is ``shown``; where stderr is no terminal it prints a line every ten seconds at most."""
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
