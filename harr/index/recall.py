"""How much of the exact pool an index finds: the share of the nearest passages, for queries like those to come.

Queries are questions, not passages. Passages find one another more easily than questions find passages: of 12,003
passages (2Wiki, MiniLM), hnsw with 16 links and a breadth of 64 found 98.3 % of the 30 nearest of 300 passages, and
94.7 % of those of 300 questions.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import IndexMismatch
from harr.index.corpus import open_index, other_index
from harr.index.passage_index import PassageIndex
from harr.io.progress import bar
from harr.params.index import IndexParams

ASKED = 200
"""Number of questions that an index is tried with."""
BLOCK = 50_000
"""Number of vectors that are compared at a time."""
SAME = 1e-5
"""Difference of two scores that count as one: of passages with the same vector any is right."""


def check_recall(
    passages: Passages,
    vectors: Vectors,
    params: IndexParams,
    out: Path,
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], NDArray[np.float32]],
    pool: int,
) -> dict[str, float]:
    """Return the share of the exact ``pool`` nearest passages that the index in ``out`` finds; a flat one is exact.

    Args:
        passages: of the corpus.
        vectors: their vectors.
        params: section ``index``.
        out: what stage index published.
        texts: questions, of which ASKED are taken, evenly.
        encode: embeds them as queries.
        pool: number of passages.

    Raises:
        IndexMismatch: the share is below ``params.min_recall``; the index stays where it is, so that another
            ``index.breadth`` is no new build.
    """
    other = other_index(params)
    own = other is None or other.open is None
    if params.kind == "flat" and own:
        return {"recall_at_pool": 1.0}
    sample = [texts[number] for number in np.unique(np.linspace(0, len(texts) - 1, ASKED).astype(int))]
    with open_index(passages, vectors, params, out) as index:
        found = recall_at(index, vectors, index.known_rows(), encode(sample), pool)
    if found < params.min_recall:
        what = f"index.kind: {params.kind}" if own else f"index.function: {params.function}"
        mend = "set a larger index.breadth, or index.kind: flat" if own else "correct index.settings"
        raise IndexMismatch(
            f"{what} finds {100 * found:.1f} % of the {pool} nearest passages of {len(sample)} "
            f"training questions, index.min_recall asks for {100 * params.min_recall:g} %; {mend}, and run "
            "`dvc repro index`"
        )
    return {"recall_at_pool": found, "recall_queries": float(len(sample))}


def recall_at(
    index: PassageIndex, vectors: Vectors, rows: NDArray[np.int64], queries_QD: NDArray[np.float32], n: int
) -> float:
    """Return the share of the ``n`` nearest of ``rows`` that the index finds, by a scan of all their vectors."""
    n = min(n, len(rows))
    best_QN = np.empty((len(queries_QD), 0), dtype=np.float32)
    with bar(total=len(rows), desc="scan", unit="passage") as progress:
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            scores_QB = np.concatenate([best_QN, queries_QD @ vectors.take(block).T], axis=1)
            best_QN = -np.partition(-scores_QB, min(n, scores_QB.shape[1]) - 1, axis=1)[:, :n]
            progress.update(len(block))
    found_QN, _ = index.search(queries_QD, n)
    scores_QN = np.einsum("qd,qnd->qn", queries_QD, vectors.take(np.maximum(found_QN, 0)))
    right_QN = (found_QN >= 0) & (scores_QN >= best_QN.min(axis=1, keepdims=True) - SAME)
    return float(right_QN.mean())
