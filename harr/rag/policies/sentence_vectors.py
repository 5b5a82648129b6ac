"""Sentence vectors by row number: a sentence is encoded once for all its documents."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harr.corpus.vectors import Vectors

RELEASE = 65_536
"""Number of rows read before the memory of vectors on disk is released: about 100 MB."""


class Sentences:
    """A growing matrix of vectors, and the row numbers of documents in it.

    A haystack's sentences may come with vectors on disk; these take the first rows and stay memory-mapped.

    >>> sentences = Sentences()
    >>> rows = sentences.rows(["It rained.", "It will rain.", "It rained."])
    >>> rows
    array([0, 1, 0])
    >>> sentences.prepare(rows, lambda texts: np.array([[len(text), 1.0] for text in texts]))
    >>> sentences.gather(rows)
    tensor([[10.,  1.],
            [13.,  1.],
            [10.,  1.]])
    """

    def __init__(self, texts: Sequence[str] = (), vectors: Vectors | None = None) -> None:
        """Start empty, or with distinct sentences ``texts`` and their ``vectors``."""
        self._row_of = {text: row for row, text in enumerate(texts)}
        self._mapped, self._first = vectors, len(texts)
        self._texts: list[str] = []  # these and all below: of the rows from ``_first``
        self._matrix = np.empty((0, 0), dtype=np.float32)
        self._fresh = np.zeros(0, dtype=bool)
        self._documents: dict[str, NDArray[np.int64]] = {}
        self._rows_read = 0

    def document(self, name: str, texts: Callable[[], Sequence[str]]) -> NDArray[np.int64]:
        """Return the rows of a document's sentences, (N,); ``texts`` is called once."""
        if name not in self._documents:
            self._documents[name] = self.rows(texts())
        return self._documents[name]

    def rows(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the row numbers of sentences, (n,), valid until :meth:`invalidate` empties everything."""
        new = [text for text in dict.fromkeys(texts) if text not in self._row_of]
        self._row_of |= {text: row for row, text in enumerate(new, self._first + len(self._texts))}
        self._texts += new
        self._fresh = np.concatenate([self._fresh, np.zeros(len(new), dtype=bool)])
        return np.fromiter(map(self._row_of.__getitem__, texts), dtype=np.int64, count=len(texts))

    def prepare(self, rows_N: NDArray[np.int64], encode: Callable[[Sequence[str]], NDArray[np.float32]]) -> None:
        """Encode the rows whose vector is missing or stale."""
        own_rows = rows_N[rows_N >= self._first] - self._first
        stale = np.unique(own_rows[~self._fresh[own_rows]])
        if not len(stale):
            return
        vectors_SD = encode([self._texts[row] for row in stale])
        if len(self._texts) > (size := len(self._matrix)):
            matrix = np.empty((max(len(self._texts), 2 * size), vectors_SD.shape[1]), dtype=np.float32)
            if size:
                matrix[:size] = self._matrix
            self._matrix = matrix
        self._matrix[stale] = vectors_SD
        self._fresh[stale] = True

    def gather(self, rows_N: NDArray[np.int64]) -> Tensor:
        """Return the vectors of prepared rows, (N, D)."""
        if self._mapped is None:
            return torch.from_numpy(self._matrix).index_select(0, torch.from_numpy(rows_N))
        self._rows_read += len(rows_N)
        if self._rows_read > RELEASE:
            self._mapped.release()
            self._rows_read = 0
        in_memory = rows_N >= self._first
        if not in_memory.any():
            return torch.from_numpy(self._mapped.take(rows_N))
        vectors_ND = np.empty((len(rows_N), self._mapped.width), dtype=np.float32)
        vectors_ND[~in_memory] = self._mapped.take(rows_N[~in_memory])
        vectors_ND[in_memory] = self._matrix[rows_N[in_memory] - self._first]
        return torch.from_numpy(vectors_ND)

    def clear(self) -> None:
        """Drop the rows of all documents; the sentences stay."""
        self._documents.clear()

    def invalidate(self, texts: Sequence[str] | None = None) -> None:
        """Mark sentences as stale after the tower has changed: they keep their rows; None empties everything.

        Raises:
            RuntimeError: a vector on disk belongs to a frozen tower and cannot be invalidated alone.
        """
        if texts is None:
            vars(self).update(vars(Sentences()))
            return
        rows = np.array([self._row_of[text] for text in texts if text in self._row_of], dtype=np.int64) - self._first
        if (rows < 0).any():
            raise RuntimeError("a sentence whose vector is on disk cannot be forgotten alone; forget all")
        self._fresh[rows] = False
