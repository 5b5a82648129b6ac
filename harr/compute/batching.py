"""Batches as large as the GPU's memory allows."""

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
    """Yield batches of ``size`` rows, in order, each with the result of ``run``; smaller ones if the GPU is full.

    A batch that does not fit is halved, as are those after it; a line with the model's ``name`` says so once.

    Raises:
        torch.OutOfMemoryError: there is no room for one row, or for a batch of distributed processes, which must stay
            in step.

    >>> list(auto_batch([3, 1, 2], 2, sum, "model"))
    [([3, 1], 4), ([2], 2)]
    """
    first = 0
    while first < len(rows):
        batch = rows[first : first + size]
        result = _try_batch(run, batch)
        if result is None:
            torch.cuda.empty_cache()
            size = len(batch) // 2
            _print_once(f"{name}: the GPU is full at batches of {len(batch)}; going on with {size}")
        else:
            yield batch, result
            first += len(batch)


def _try_batch(run: Callable[[Sequence[Row]], T], batch: Sequence[Row]) -> T | None:
    """Return the result of ``run``; None without room, once the traceback, which refers to tensors, is freed."""
    try:
        return run(batch)
    except torch.OutOfMemoryError:
        if len(batch) == 1 or torch.distributed.is_initialized():
            raise
        return None


@cache
def _print_once(line: str) -> None:
    """Print a line once per process."""
    tqdm.write(line)
