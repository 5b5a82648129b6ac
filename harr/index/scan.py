"""An exact in-memory scan of a corpus's vectors, which `harr serve` uses if the index is Milvus Lite.

Milvus Lite copies all vectors for every call; a scan of 58,112 vectors is about ten times as fast
(docs/performance.md).
"""

import numpy as np
import torch
from numpy.typing import NDArray

from harr.corpus.vectors import Vectors
from harr.errors import IndexMismatch

SPARE = 64
"""Number of extra passages that are checked for ties."""
AT_ONCE = 64
"""Number of queries scored at a time: more would not fit into the processor's cache."""


class VectorScan:
    """A corpus's searchable vectors, all of which are compared with every query in float32."""

    def __init__(self, vectors: Vectors, rows: NDArray[np.int64]) -> None:
        """Load the vectors of ``rows``, the index's rows."""
        self.rows, self.width = len(rows), vectors.width
        self._row_of = rows
        self._vectors_ND = torch.from_numpy(vectors.take(rows))

    def search(self, vectors_QD: NDArray[np.float32], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return rows and inner products of the ``n`` nearest passages, as :meth:`PassageIndex.search` does."""
        queries_QD = torch.from_numpy(np.ascontiguousarray(vectors_QD, dtype=np.float32))
        if queries_QD.shape[1] != self.width:
            raise IndexMismatch(f"query vectors have width {queries_QD.shape[1]}, but the corpus has {self.width}")
        rows_QN = np.full((len(queries_QD), n), -1, dtype=np.int64)
        scores_QN = np.full((len(queries_QD), n), -np.inf, dtype=np.float32)
        for start in range(0, len(queries_QD) if self.rows else 0, AT_ONCE):
            block = slice(start, start + AT_ONCE)
            top = (queries_QD[block] @ self._vectors_ND.T).topk(min(n + SPARE, self.rows))
            scores_QM, places_QM = top.values.numpy(), top.indices.numpy()
            best_QN = np.lexsort((places_QM, -scores_QM.round(6)))[:, :n]
            rows_QN[block, : self.rows] = self._row_of[np.take_along_axis(places_QM, best_QN, -1)]
            scores_QN[block, : self.rows] = np.take_along_axis(scores_QM, best_QN, -1)
        return rows_QN, scores_QN
