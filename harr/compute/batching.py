"""Batches as large as the GPU has room for."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeVar

import torch
from tqdm import tqdm

Row = TypeVar("Row")
T = TypeVar("T")


def auto_batch(
    rows: Sequence[Row], size: int, run: Callable[[Sequence[Row]], T], name: str
) -> Iterator[tuple[Sequence[Row], T]]:
    """Yield batches of ``size`` rows, in order, each with what ``run`` makes of it; smaller ones where the GPU is full.

    A batch without room is halved, and so are those after it, which is told once for the model ``name``.

    Raises:
        torch.OutOfMemoryError: there is no room for one row; or processes compute together, all equally often.

    >>> list(auto_batch([3, 1, 2], 2, sum, "model"))
    [([3, 1], 4), ([2], 2)]
    """
    first = 0
    while first < len(rows):
        batch = rows[first : first + size]
        found = _tried(run, batch)
        if found is None:
            torch.cuda.empty_cache()
            size = len(batch) // 2
            _tell(f"{name}: the GPU is full at batches of {len(batch)}; going on with {size}")
        else:
            yield batch, found
            first += len(batch)


def _tried(run: Callable[[Sequence[Row]], T], batch: Sequence[Row]) -> T | None:
    """Return what ``run`` makes of a batch; None without room, once the traceback, which holds tensors, is gone."""
    try:
        return run(batch)
    except torch.OutOfMemoryError:
        if len(batch) == 1 or torch.distributed.is_initialized():
            raise
        return None


@cache
def _tell(line: str) -> None:
    """Print a line that this process has not printed yet."""
    tqdm.write(line)
