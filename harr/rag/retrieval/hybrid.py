"""Dense and BM25 search of one collection, fused by rank.

Milvus also fuses, but by normalised scores instead of ranks, with undefined ties; and a policy needs the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harr.index.passage_index import PassageIndex
from harr.types import Retrieval, Retriever, Search


@dataclass(frozen=True)
class Fusion:
    """A fusion of two rankings: a passage scores ``weight / (offset + rank)`` in each, rank from 0.

    ``dense`` and ``sparse`` are the weights; a side of weight 0 is not searched. Offset 1 gives 1 / rank, as a weighted
    sum of reciprocal ranks; offset 61 and equal weights give reciprocal rank fusion with k = 60 (Cormack, Clarke and
    Buettcher, 2009).
    """

    dense: float = 1.0
    sparse: float = 0.0
    offset: int = 1

    def find(
        self, index: PassageIndex, vectors_QD: NDArray[np.float32], texts: Sequence[str], n: int
    ) -> NDArray[np.int64]:
        """Return rows of the ``n`` best passages for Q queries, (Q, n), padded with -1, with one index call per side.

        ``texts`` are the queries as words, ``vectors_QD`` as vectors. Each side contributes its ``n`` best.
        """
        sides = []
        if self.dense:
            sides.append((index.search(vectors_QD, n)[0], self.dense))
        if self.sparse:
            sides.append((index.search_text(texts, n)[0], self.sparse))
        return sides[0][0] if len(sides) == 1 else fuse(sides, n, offset=self.offset)[0]


DENSE = Fusion()


def fusion_of(search: str, fusion: str, weights: tuple[float, float]) -> Fusion:
    """Return the fusion of ``dense``, ``sparse`` or ``hybrid`` search; hybrid fuses by ``weighted`` or ``rrf``.

    >>> fusion_of("hybrid", "weighted", (0.8, 0.2)), fusion_of("hybrid", "rrf", (0.8, 0.2))
    (Fusion(dense=0.8, sparse=0.2, offset=1), Fusion(dense=1.0, sparse=1.0, offset=61))
    """
    if search != "hybrid":
        return Fusion(dense=float(search == "dense"), sparse=float(search == "sparse"))
    return Fusion(*weights) if fusion == "weighted" else Fusion(1.0, 1.0, offset=61)


def fuse(
    sides: Sequence[tuple[NDArray[np.int64], float]], n: int, *, offset: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Fuse rankings, each a pair of numbers, shape (Q, any), best first and padded with -1, and a weight.

    Returns: the ``n`` best numbers and their scores, shape (Q, n) each, padded with -1 and 0. Scores that agree to 1e-9
    are ordered by number. A number that a side lacks scores 0 there.

    >>> dense, sparse = np.array([[0, 1, 2]]), np.array([[1, 3]])
    >>> rows, scores = fuse([(dense, 0.8), (sparse, 0.2)], 4)
    >>> rows.tolist(), scores.round(3).tolist()
    ([[0, 1, 2, 3]], [[0.8, 0.6, 0.267, 0.1]])
    """
    queries = len(sides[0][0])
    query_M = np.concatenate([np.repeat(np.arange(queries), ranked.shape[1]) for ranked, _ in sides])
    row_M = np.concatenate([ranked.ravel() for ranked, _ in sides])
    score_M = np.concatenate(
        [np.tile(weight / (offset + np.arange(ranked.shape[1])), queries) for ranked, weight in sides]
    )
    valid_M = row_M >= 0
    size = int(row_M.max(initial=0)) + 1
    keys, place = np.unique((query_M * size + row_M)[valid_M], return_inverse=True)
    scores = np.bincount(place, weights=score_M[valid_M], minlength=len(keys)).round(9)
    query_of, row_of = np.divmod(keys, size)
    order = np.lexsort((row_of, -scores, query_of))
    rank = np.arange(len(order)) - np.searchsorted(query_of, query_of[order])
    is_top = rank < n
    rows_QN, scores_QN = np.full((queries, n), -1, dtype=np.int64), np.zeros((queries, n))
    place_of = query_of[order][is_top], rank[is_top]
    rows_QN[place_of], scores_QN[place_of] = row_of[order][is_top], scores[order][is_top]
    return rows_QN, scores_QN


def pad(rankings: Sequence[Sequence[int] | NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return rankings of different lengths as one table, padded with -1.

    >>> pad([(4, 2), (7,)])
    array([[ 4,  2],
           [ 7, -1]])
    """
    table = np.full((len(rankings), max(1, *map(len, rankings)) if rankings else 1), -1, dtype=np.int64)
    for row, ranking in zip(table, rankings, strict=True):
        row[: len(ranking)] = ranking
    return table


def pad_tables(tables: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return tables of different lengths, (N, F) each, as one, (B, N, F), padded with 0.

    >>> pad_tables([np.ones((1, 2), np.float32), np.ones((2, 2), np.float32)]).sum(-1).tolist()
    [[2.0, 0.0], [2.0, 2.0]]
    """
    padded_BNF = np.zeros((len(tables), max(map(len, tables)), tables[0].shape[1]), dtype=np.float32)
    for padded_NF, table_NF in zip(padded_BNF, tables, strict=True):
        padded_NF[: len(table_NF)] = table_NF
    return padded_BNF


@dataclass
class HybridRetriever:
    """A retriever that fuses the rankings of two others, for pipelines whose retriever does not learn.

    Each side gives its ``depth`` best passages; the ``k`` best of the fused ranking are returned in its order, ties by
    passage id.
    """

    dense: Retriever
    sparse: Retriever
    fusion: Fusion
    k: int
    depth: int

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return the best ``k`` passages per search, with one ``retrieve`` call per side."""
        deeper = [replace(search, k=max(self.depth, search.k or self.k)) for search in searches]
        sides = [(self.dense.retrieve(deeper), self.fusion.dense), (self.sparse.retrieve(deeper), self.fusion.sparse)]
        passage_of = {p.id: p for answers, _ in sides for retrieval in answers for p in retrieval.passages}
        ids = sorted(passage_of)
        number_of = {pid: number for number, pid in enumerate(ids)}
        ranked = [(pad([[number_of[p.id] for p in r.passages] for r in answers]), weight) for answers, weight in sides]
        counts = [search.k or self.k for search in searches]
        rows_QN, scores_QN = fuse(ranked, max(counts), offset=self.fusion.offset)
        best = [[row for row in rows[:k] if row >= 0] for rows, k in zip(rows_QN.tolist(), counts, strict=True)]
        return [
            Retrieval(tuple(passage_of[ids[row]] for row in rows), scores=tuple(scores[: len(rows)]))
            for rows, scores in zip(best, scores_QN.tolist(), strict=True)
        ]
