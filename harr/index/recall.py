"""Recall of an approximate index: the share of the exact nearest passages that it finds.

Queries are questions, not passages. Passages find one another more easily than questions find passages: among 12,003
passages (2Wiki, MiniLM), hnsw with 16 links and a breadth of 64 found 98.3 % of the 30 nearest to 300 passages, but
94.7 % of those nearest to 300 questions.
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

QUERIES = 200
"""Maximum number of questions in the measurement."""
BLOCK = 50_000
"""Number of vectors compared at a time."""
SAME = 1e-5
"""Maximum difference between equal scores: of passages with the same vector, any is right."""


def check_recall(
    passages: Passages,
    vectors: Vectors,
    params: IndexParams,
    out: Path,
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], NDArray[np.float32]],
    pool: int,
) -> dict[str, float]:
    """Return the share of the ``pool`` nearest passages that the index in ``out`` finds; a flat one is exact.

    Args:
        passages: the corpus.
        vectors: their vectors.
        params: section ``index``.
        out: output of stage index.
        texts: questions, of which at most QUERIES are taken, evenly spaced.
        encode: embeds them as queries.
        pool: number of passages.

    Raises:
        IndexMismatch: the share is below ``params.min_recall``; the index is kept, so another ``index.breadth``
            needs no new build.
    """
    other = other_index(params)
    is_milvus = other is None or other.open is None
    if params.kind == "flat" and is_milvus:
        return {"recall_at_pool": 1.0}
    sample = [texts[number] for number in np.unique(np.linspace(0, len(texts) - 1, QUERIES).astype(int))]
    with open_index(passages, vectors, params, out) as index:
        recall = recall_at(index, vectors, index.list_rows(), encode(sample), pool)
    if recall < params.min_recall:
        subject = f"index.kind: {params.kind}" if is_milvus else f"index.function: {params.function}"
        remedy = "set a larger index.breadth, or index.kind: flat" if is_milvus else "correct index.settings"
        raise IndexMismatch(
            f"{subject} finds {100 * recall:.1f} % of the {pool} nearest passages of {len(sample)} "
            f"training questions, index.min_recall asks for {100 * params.min_recall:g} %; {remedy}, and run "
            "`dvc repro index`"
        )
    return {"recall_at_pool": recall, "recall_queries": float(len(sample))}


def recall_at(
    index: PassageIndex, vectors: Vectors, rows: NDArray[np.int64], queries_QD: NDArray[np.float32], n: int
) -> float:
    """Return the share of the ``n`` nearest of ``rows``, by a scan of all their vectors, that the index finds."""
    n = min(n, len(rows))
    best_QN = np.empty((len(queries_QD), 0), dtype=np.float32)
    with bar(total=len(rows), desc="scan", unit="passage") as progress:
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            scores_QB = np.concatenate([best_QN, queries_QD @ vectors.take(block).T], axis=1)
            best_QN = -np.partition(-scores_QB, min(n, scores_QB.shape[1]) - 1, axis=1)[:, :n]
            progress.update(len(block))
    hits_QN, _ = index.search(queries_QD, n)
    scores_QN = np.einsum("qd,qnd->qn", queries_QD, vectors.take(np.maximum(hits_QN, 0)))
    right_QN = (hits_QN >= 0) & (scores_QN >= best_QN.min(axis=1, keepdims=True) - SAME)
    return float(right_QN.mean())
