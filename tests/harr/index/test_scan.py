"""A scan of vectors in memory finds the nearest."""

import numpy as np
import pytest

from harr.corpus.vectors import Vectors
from harr.errors import IndexMismatch
from harr.index.scan import VectorScan


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    vectors = rng.normal(size=shape).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def nearest(vectors: np.ndarray, queries: np.ndarray, n: int) -> list[list[int]]:
    scores = queries @ vectors.T
    return [np.lexsort((np.arange(len(vectors)), -row.round(6)))[:n].tolist() for row in scores]


@pytest.mark.parametrize("size", [40, 20_011])
def test_it_finds_the_nearest(size: int) -> None:
    rng = np.random.default_rng(size)
    vectors, queries = unit(rng, size, 64), unit(rng, 9, 64)
    made = Vectors({"identity": "x", "rows": size, "width": 64}, [vectors])
    rows, scores = VectorScan(made, np.arange(size)).search(queries, 10)
    assert rows.tolist() == nearest(vectors, queries, 10)
    np.testing.assert_allclose(scores, np.take_along_axis(queries @ vectors.T, rows, 1), atol=2e-6)


def test_padding_ties_and_rows_that_are_not_searchable() -> None:
    vectors = np.eye(4, dtype=np.float32)[[0, 1, 0, 2, 0]]
    made = Vectors({"identity": "x", "rows": 5, "width": 4}, [vectors])
    scan = VectorScan(made, np.array([0, 2, 3, 4]))
    rows, scores = scan.search(np.eye(4, dtype=np.float32)[:1], 6)
    assert rows.tolist() == [[0, 2, 4, 3, -1, -1]] and scores[0].tolist() == [1, 1, 1, 0, -np.inf, -np.inf]
    with pytest.raises(IndexMismatch, match="query vectors have width 3, but the corpus has 4"):
        scan.search(np.zeros((1, 3), np.float32), 1)
    assert scan.search(np.zeros((0, 4), np.float32), 3)[0].shape == (0, 3)
