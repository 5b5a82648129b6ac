"""Passages in the order of a reranker, which reads query and passage together (arXiv 1901.04085)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harr.compute import distributed
from harr.rag.scoring.reranker import Score
from harr.types import Retrieval, Retriever, Search


@dataclass
class Reranked:
    """A retriever that orders the first ``depth`` passages of ``base`` by ``score`` and returns the ``k`` best.

    Only the query itself is seen. Equal scores keep the order of ``base``. Of several processes the main one asks.
    """

    base: Retriever
    score: Score
    k: int
    depth: int

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return the best ``k`` passages per search: one call of ``base``, and one of ``score``."""
        found = self.base.retrieve([replace(s, k=max(self.depth, s.k or self.k)) for s in searches])
        asked = [
            (self.text(search, retrieval), tuple(passage.content for passage in retrieval.passages))
            for search, retrieval in zip(searches, found, strict=True)
        ]
        wanted = sorted({one for one in asked if one[1]})
        scores = distributed.main_process_only(lambda: self.score(wanted))
        told = dict(zip(wanted, scores, strict=True))
        ranked = []
        for search, retrieval, one in zip(searches, found, asked, strict=True):
            own = told.get(one, [])
            order = sorted(range(len(own)), key=lambda place: -own[place])[: search.k or self.k]
            best = tuple(retrieval.passages[place] for place in order)
            ranked.append(replace(retrieval, passages=best, scores=tuple(own[place] for place in order)))
        return ranked

    def text(self, search: Search, retrieval: Retrieval) -> str:
        """Return the text that passages are scored for; ``retrieval`` is that of ``base``."""
        return search.query
