"""What every task shares: retries for servers that do not answer, and no result caching (DVC does that)."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from prefect.cache_policies import NO_CACHE
from prefect.utilities.annotations import quote

from harr.errors import ServiceUnavailable
from harr.rag.scoring.reward import Reward
from harr.types import Generator, Log, Retriever

T = TypeVar("T")
SAMPLE = 200_000
"""Larger tables are checked on so many rows, spread evenly."""


async def unreachable(task: Any, task_run: Any, state: Any) -> bool:
    """Retry only where a server did not answer; a wrong input does not get better by waiting.

    Of several processes none retries: the others have ended with the same error.
    """
    error = await state.aresult(raise_on_failure=False)
    again = isinstance(error, ServiceUnavailable) and int(os.environ.get("WORLD_SIZE", "1")) == 1
    if again:
        print(f"{task.name}: {error}; trying again", file=sys.stderr)
    return again


TASK: dict[str, Any] = {
    "retries": 2,
    "retry_delay_seconds": [5, 30],
    "retry_condition_fn": unreachable,
    "cache_policy": NO_CACHE,
}
GPU_TASK: dict[str, Any] = {**TASK, "tags": ["gpu"]}
"""For work that uses the accelerator: `prefect concurrency-limit create gpu 1` lets one run at a time."""


def as_it_is(value: T) -> T:
    """Return a value for a task that Prefect hands over without a search for futures in it, row by row."""
    return cast(T, quote(value))


def forget(work: Path) -> None:
    """Remove a stage's checkpoints once it has reported: a run that is done must not answer for code of tomorrow."""
    shutil.rmtree(work, ignore_errors=True)


def even_sample(rows: int) -> NDArray[np.int64]:
    """Return row numbers for a check: all of them, or ``SAMPLE`` spread evenly.

    >>> even_sample(3)
    array([0, 1, 2])
    >>> len(even_sample(SAMPLE + 1)), even_sample(SAMPLE + 1)[-1] == SAMPLE
    (200000, np.True_)
    """
    return np.linspace(0, rows - 1, min(rows, SAMPLE)).astype(np.int64)


def report_usage(log: Log, **players: Generator | Retriever | Reward | None) -> None:
    """Print and log what a stage asked of its generator, judge and sources: requests, those from the cache, tokens."""
    for player, asked in players.items():
        used: Mapping[str, float] = getattr(asked, "usage", dict)()
        if any(used.values()):
            told = ", ".join(f"{count:,.0f} {name.replace('_', ' ')}" for name, count in used.items())
            print(f"{player}: {told}")
            log(0, {f"{player.replace(' ', '_')}.{name.replace(' ', '_')}": count for name, count in used.items()})
