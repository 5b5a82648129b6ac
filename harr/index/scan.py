"""An exact scan of the vectors of a corpus in memory: what a server searches where Milvus Lite is the index.

Milvus Lite copies all vectors for every call and lets one process in at a time; a scan of 58,112 vectors is some twenty
times as fast (docs/decisions.md) and leaves the index to the stages.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harr.compute.packed import Packed
from harr.corpus.vectors import Vectors
from harr.errors import IndexMismatch

SPARE = 64
"""Number of passages beyond those asked for that are scored again in float32."""
STEP = 16
"""One in so many scores is looked at further: the best of its block."""
AT_ONCE = 64
"""Number of queries whose scores are in memory at a time: those of more would leave the processor's cache."""
BF16_STEP = 2.0**-8
"""Largest share of a number that bfloat16 loses when a vector, or a score, is rounded."""


class VectorScan:
    """The searchable vectors of a corpus, which are compared with every query.

    Where the processor multiplies bfloat16 faster, such a copy finds candidates, which are scored again in float32. The
    result is that of a scan in float32: rounding errors are bounded, and a query whose candidates could lack a passage
    for them is scanned again without the copy.
    """

    def __init__(self, vectors: Vectors, rows: NDArray[np.int64]) -> None:
        """Read the vectors of ``rows``, which are those that go into the index."""
        self.rows, self.width = len(rows), vectors.width
        self._row_of = rows
        self._full_ND = torch.from_numpy(vectors.take(rows))
        half_ND = self._full_ND.bfloat16()
        self._lost = float((self._full_ND - half_ND).norm(dim=-1).max()) if len(rows) else 0.0
        self._half: Packed | None = None
        if len(rows) > SPARE:
            few_QD, half = self._full_ND[:8], Packed(half_ND)
            if _seconds(lambda: half(few_QD.bfloat16())) < _seconds(lambda: few_QD @ self._full_ND.T):
                self._half = half

    def search(self, vectors_QD: NDArray[np.float32], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return rows and inner products of the ``n`` nearest passages, as :meth:`PassageIndex.search` does."""
        queries_QD = torch.from_numpy(np.ascontiguousarray(vectors_QD, dtype=np.float32))
        if queries_QD.shape[1] != self.width:
            raise IndexMismatch(f"query vectors have width {queries_QD.shape[1]}, but the corpus has {self.width}")
        rows_QN = np.full((len(queries_QD), n), -1, dtype=np.int64)
        scores_QN = np.full((len(queries_QD), n), -np.inf, dtype=np.float32)
        for start in range(0, len(queries_QD) if self.rows else 0, AT_ONCE):
            some = slice(start, start + AT_ONCE)
            places_QM, found_QM = self._nearest(queries_QD[some], n)
            best_QN = np.lexsort((places_QM, -found_QM.round(6)))[:, :n]
            rows_QN[some, : self.rows] = self._row_of[np.take_along_axis(places_QM, best_QN, -1)]
            scores_QN[some, : self.rows] = np.take_along_axis(found_QM, best_QN, -1)
        return rows_QN, scores_QN

    def _nearest(self, queries_QD: Tensor, n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return candidates for every query, the ``n`` nearest and all that are level among them, and their scores."""
        wanted = min(n + SPARE, self.rows)
        if self._half is None:
            scores_QM, places_QM = _best(queries_QD @ self._full_ND.T, wanted)
            return places_QM.numpy(), scores_QM.numpy()
        half_QD = queries_QD.bfloat16()
        rough_QM, places_QM = _best(self._half(half_QD), wanted)
        pairs = zip(queries_QD, places_QM, strict=True)
        exact_QM = torch.stack([self._full_ND.index_select(0, places_M) @ query_D for query_D, places_M in pairs])
        least_Q, size_Q = rough_QM[:, -1].float(), queries_QD.norm(dim=-1)
        lost_Q = self._lost * size_Q + (queries_QD - half_QD).norm(dim=-1) + BF16_STEP * least_Q.abs()
        unseen_Q = least_Q + lost_Q  # no passage that is not among the candidates scores more
        unsure_Q = exact_QM.topk(min(n, wanted))[0][:, -1] <= unseen_Q + 1e-6
        for q in unsure_Q.nonzero()[:, 0].tolist() if wanted < self.rows else ():
            scores_1M, places_1M = _best(queries_QD[q : q + 1] @ self._full_ND.T, wanted)
            exact_QM[q], places_QM[q] = scores_1M[0], places_1M[0]
        return places_QM.numpy(), exact_QM.numpy()


def _best(scores_QN: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the ``n`` highest scores of every row, best first, and their places.

    They lie in the ``n`` blocks with the highest best score, so that most scores are looked at once. A block is one
    score in every so many, which lets the processor compare many blocks at a time.

    >>> _best(torch.tensor([[0.1, 0.9, 0.5]]), 2)
    (tensor([[0.9000, 0.5000]]), tensor([[1, 2]]))
    """
    rows, size = scores_QN.shape
    blocks = size // STEP
    if blocks <= 2 * n:
        scores, places = scores_QN.topk(n)
        return scores, places
    top_QM = scores_QN[:, : STEP * blocks].unflatten(1, (STEP, blocks)).amax(1).topk(n, sorted=False)[1]
    places_QX = (top_QM[..., None] + blocks * torch.arange(STEP)).flatten(1)
    rest_QR = torch.arange(STEP * blocks, size).expand(rows, -1)
    places_QX = torch.hstack([places_QX, rest_QR])
    scores, at = scores_QN.gather(1, places_QX).topk(n)
    return scores, places_QX.gather(1, at)


def _seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes, the least of three times."""
    return min(_timed(call) for _ in range(3))


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
