"""Helpers that several stages share."""

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
"""Number of evenly spread rows on which a larger table is checked."""


def forget(work: Path) -> None:
    """Remove a stage's checkpoints once it has reported, so that later code never resumes a finished run."""
    shutil.rmtree(work, ignore_errors=True)


def dataset_name(params: Params) -> str:
    """Return the name of the data set, or of another package's function that provides it."""
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
    """Print and log a stage's use of its generator, judge and sources: requests, cached requests, tokens."""
    for player, source in players.items():
        used: Mapping[str, float] = getattr(source, "usage", dict)()
        if any(used.values()):
            counts = ", ".join(f"{count:,.0f} {name.replace('_', ' ')}" for name, count in used.items())
            print(f"{player}: {counts}")
            log(0, {f"{player.replace(' ', '_')}.{name.replace(' ', '_')}": count for name, count in used.items()})


def filter_suite(params: Params) -> str:
    """Return the suite that checks what stage filter kept."""
    if params.train.prefers:
        return "preferences"
    return "all_kept" if params.filter.keep == "all" else "filtered"


def read_vectors_manifest() -> dict[str, Any]:
    """Return the manifest of the published vectors, checked against its hash; the vectors themselves are not read.

    Raises:
        DamagedFile: it is missing or changed. IndexMismatch: the vectors are of a corpus other than the one here.
    """
    from harr.corpus import passages, vectors

    manifest = read_manifest(VECTORS, vectors.REBUILD, shards=False, keys={"rows": int, "dtype": str})
    if CORPUS.exists():
        corpus = read_manifest(CORPUS, passages.REBUILD, shards=False)
        vectors.check_corpus(manifest, corpus["identity"], VECTORS)
    return manifest
