"""An exact scan of a corpus's vectors in memory, which a server uses if the index is Milvus Lite.

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
"""Number of passages beyond the request that are scored again in float32."""
STEP = 16
"""Size of a block of scores, of which only the best is compared first."""
AT_ONCE = 64
"""Number of queries whose scores are in memory at a time: more would not fit into the processor's cache."""
BF16_STEP = 2.0**-8
"""Maximum relative rounding error of bfloat16."""


class VectorScan:
    """The searchable vectors of a corpus, compared with every query.

    If the processor multiplies bfloat16 faster, a copy in bfloat16 finds candidates, which are scored again in float32.
    The result equals that of a scan in float32: rounding errors are bounded, and a query whose candidates might lack a
    passage is scanned again without the copy.
    """

    def __init__(self, vectors: Vectors, rows: NDArray[np.int64]) -> None:
        """Read the vectors of ``rows``, those of the index."""
        self.rows, self.width = len(rows), vectors.width
        self._row_of = rows
        self._full_ND = torch.from_numpy(vectors.take(rows))
        half_ND = self._full_ND.bfloat16()
        self._rounding = float((self._full_ND - half_ND).norm(dim=-1).max()) if len(rows) else 0.0
        self._half: Packed | None = None
        if len(rows) > SPARE:
            few_QD, half = self._full_ND[:8], Packed(half_ND)
            if _measure_seconds(lambda: half(few_QD.bfloat16())) < _measure_seconds(lambda: few_QD @ self._full_ND.T):
                self._half = half

    def search(self, vectors_QD: NDArray[np.float32], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return rows and inner products of the ``n`` nearest passages, as :meth:`PassageIndex.search` does."""
        queries_QD = torch.from_numpy(np.ascontiguousarray(vectors_QD, dtype=np.float32))
        if queries_QD.shape[1] != self.width:
            raise IndexMismatch(f"query vectors have width {queries_QD.shape[1]}, but the corpus has {self.width}")
        rows_QN = np.full((len(queries_QD), n), -1, dtype=np.int64)
        scores_QN = np.full((len(queries_QD), n), -np.inf, dtype=np.float32)
        for start in range(0, len(queries_QD) if self.rows else 0, AT_ONCE):
            block = slice(start, start + AT_ONCE)
            places_QM, scores_QM = self._nearest(queries_QD[block], n)
            best_QN = np.lexsort((places_QM, -scores_QM.round(6)))[:, :n]
            rows_QN[block, : self.rows] = self._row_of[np.take_along_axis(places_QM, best_QN, -1)]
            scores_QN[block, : self.rows] = np.take_along_axis(scores_QM, best_QN, -1)
        return rows_QN, scores_QN

    def _nearest(self, queries_QD: Tensor, n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return candidates for every query, among them the ``n`` nearest and their ties, and their scores."""
        count = min(n + SPARE, self.rows)
        if self._half is None:
            scores_QM, places_QM = _top_scores(queries_QD @ self._full_ND.T, count)
            return places_QM.numpy(), scores_QM.numpy()
        half_QD = queries_QD.bfloat16()
        rough_QM, places_QM = _top_scores(self._half(half_QD), count)
        pairs = zip(queries_QD, places_QM, strict=True)
        exact_QM = torch.stack([self._full_ND.index_select(0, places_M) @ query_D for query_D, places_M in pairs])
        least_Q, size_Q = rough_QM[:, -1].float(), queries_QD.norm(dim=-1)
        error_Q = self._rounding * size_Q + (queries_QD - half_QD).norm(dim=-1) + BF16_STEP * least_Q.abs()
        bound_Q = least_Q + error_Q  # no passage outside the candidates scores more
        unsure_Q = exact_QM.topk(min(n, count))[0][:, -1] <= bound_Q + 1e-6
        for q in unsure_Q.nonzero()[:, 0].tolist() if count < self.rows else ():
            scores_1M, places_1M = _top_scores(queries_QD[q : q + 1] @ self._full_ND.T, count)
            exact_QM[q], places_QM[q] = scores_1M[0], places_1M[0]
        return places_QM.numpy(), exact_QM.numpy()


def _top_scores(scores_QN: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the ``n`` highest scores of every row, best first, and their places.

    They lie in the ``n`` blocks with the highest best score, so that most scores are read once. The scores of a block
    lie apart at a fixed distance, which lets the processor compare many blocks at a time.

    >>> _top_scores(torch.tensor([[0.1, 0.9, 0.5]]), 2)
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


def _measure_seconds(call: Callable[[], object]) -> float:
    """Return the duration of a call, the least of three."""
    return min(_time_call(call) for _ in range(3))


def _time_call(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
