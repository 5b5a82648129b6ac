"""What several stages share."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.io.files import read_manifest
from harr.params import Params
from harr.rag.scoring.reward import Reward
from harr.types import Generator, Log, Retriever
from tasks.paths import CORPUS, VECTORS

SAMPLE = 200_000
"""Number of rows, spread evenly, that a larger table is checked on."""


def forget(work: Path) -> None:
    """Remove a stage's checkpoints once it has reported: a run that is done must not answer for code of tomorrow."""
    shutil.rmtree(work, ignore_errors=True)


def dataset_name(params: Params) -> str:
    """Return the name of the data set, or of the function of another package that brings it."""
    return str(getattr(params.download, "function", params.download.dataset))


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
    for player, source in players.items():
        used: Mapping[str, float] = getattr(source, "usage", dict)()
        if any(used.values()):
            counts = ", ".join(f"{count:,.0f} {name.replace('_', ' ')}" for name, count in used.items())
            print(f"{player}: {counts}")
            log(0, {f"{player.replace(' ', '_')}.{name.replace(' ', '_')}": count for name, count in used.items()})


def filter_suite(params: Params) -> str:
    """Return the suite that what the stage kept is checked by."""
    if params.train.prefers:
        return "preferences"
    return "all_kept" if params.filter.keep == "all" else "filtered"


def read_vectors_manifest() -> dict[str, Any]:
    """Return the manifest of the published vectors, compared with its hash; the vectors themselves are not read.

    Raises:
        DamagedFile: it is missing or changed. IndexMismatch: they are of another corpus than the one that is here.
    """
    from harr.corpus import passages, vectors

    manifest = read_manifest(VECTORS, vectors.REBUILD, shards=False, keys={"rows": int, "dtype": str})
    if CORPUS.exists():
        corpus = read_manifest(CORPUS, passages.REBUILD, shards=False)
        vectors.check_corpus(manifest, corpus["identity"], VECTORS)
    return manifest
