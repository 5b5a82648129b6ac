"""Retrieval reordered by a reranker, which reads query and passage together (arXiv 1901.04085)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harr.builders.retrievers import RetrieverInputs
from harr.compute import distributed
from harr.params.faults import read_section
from harr.params.reward import RerankerParams
from harr.rag.scoring.reranker import Score, open_reranker
from harr.types import Retrieval, Retriever, Search


@dataclass
class Reranked:
    """A retriever that orders the first ``depth`` passages of ``base`` by ``score`` and returns the ``k`` best.

    It reads only the query. Equal scores keep the order of ``base``. Only the main process calls the reranker.
    """

    base: Retriever
    score: Score
    k: int
    depth: int

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return the best ``k`` passages per search, by one call of ``base`` and one of ``score``."""
        retrievals = self.base.retrieve([replace(s, k=max(self.depth, s.k or self.k)) for s in searches])
        requests = [
            (self.text(search, retrieval), tuple(passage.content for passage in retrieval.passages))
            for search, retrieval in zip(searches, retrievals, strict=True)
        ]
        distinct = sorted({request for request in requests if request[1]})
        scores = distributed.main_process_only(lambda: self.score(distinct))
        scores_of = dict(zip(distinct, scores, strict=True))
        ranked = []
        for search, retrieval, request in zip(searches, retrievals, requests, strict=True):
            request_scores = scores_of.get(request, [])
            order = sorted(range(len(request_scores)), key=lambda place: -request_scores[place])[: search.k or self.k]
            best = tuple(retrieval.passages[place] for place in order)
            ranked.append(replace(retrieval, passages=best, scores=tuple(request_scores[place] for place in order)))
        return ranked

    def text(self, search: Search, retrieval: Retrieval) -> str:
        """Return the text that passages are scored for; ``retrieval`` is that of ``base``."""
        return search.query


def rerank(inputs: RetrieverInputs) -> Reranked:
    """Return the arm ``{name: rerank, retriever: "harr_rerankers.reranked:rerank", settings: {model: ...}}``.

    Its settings are those of ``reward.reranker``; it orders the first ``retriever.pool`` passages of its base.

    Raises:
        ParamsError: the settings are wrong.
        ModelError: the model cannot be found or loaded, or is not a cross-encoder.
    """
    params = read_section(RerankerParams, inputs.settings, "settings of rerank")
    return Reranked(inputs.base, open_reranker(params, "rerank.settings"), inputs.k, inputs.pool)
