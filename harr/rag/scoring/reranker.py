"""The reward term ``relevance``: how well a reranker thinks that the passages of a search answer its sub-query.

As in HARR (arXiv 2602.03645) it is a reward per step: the mean score of the step's passages, by a reranker behind an
address of Cohere's form ``/rerank``, which vLLM, SGLang and others serve.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harr.errors import ParamsError
from harr.params.reward import RerankerParams
from harr.services.openai_client import Service
from harr.types import Episode, Value

Score = Callable[[Sequence[tuple[str, Sequence[str]]]], list[list[float]]]
"""Several queries, each with its texts, to one score per text."""


def relevances(score: Score, episodes: Sequence[Episode]) -> list[Value]:
    """Return per step the mean score of its passages for its sub-query, 0.0 where it found none.

    Every pair of a sub-query and a passage is scored once, those of a sub-query in one request. Of several processes
    the main one asks.
    """
    from harr.compute import distributed  # loads torch, which naming a reward does without

    steps = [step for episode in episodes for step in episode.steps]
    found: dict[str, dict[str, None]] = {}
    for step in steps:
        found.setdefault(step.search.query, {}).update({p.content: None for p in step.retrieval.passages})
    asked = [(query, list(texts)) for query, texts in found.items() if texts]
    scores = distributed.main_process_only(lambda: score(asked))
    score_of = {query: dict(zip(texts, own, strict=True)) for (query, texts), own in zip(asked, scores, strict=True)}

    def mean(query: str, texts: Sequence[str]) -> float:
        return sum(score_of[query][text] for text in texts) / len(texts) if texts else 0.0

    return [
        [mean(step.search.query, [p.content for p in step.retrieval.passages]) for step in episode.steps]
        for episode in episodes
    ]


class Reranker:
    """A reranker that is asked at ``params.base_url`` + ``/rerank``, up to ``params.concurrency`` queries at a time.

    Failed attempts are tried again as :class:`harr.services.openai_client.Service` says.
    """

    def __init__(self, params: RerankerParams) -> None:
        self._params = params
        self._service = Service(
            "reward.reranker",
            base_url=params.base_url,
            model=params.model,
            key_variable=params.key_variable,
            timeout_seconds=params.timeout_seconds,
            deadline_seconds=params.deadline_seconds,
            unreachable="reward.reranker.base_url, timeout_seconds or deadline_seconds",
            overloaded="reward.reranker.concurrency",
        )

    def __call__(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        """Return the scores of the texts of every query, in their order.

        Raises:
            ServiceUnavailable: no answer, or only 429 and 5xx answers, until the deadline.
            ParamsError: the server refuses a request, or answers with something else than a score a text.
        """
        with ThreadPoolExecutor(self._params.concurrency, thread_name_prefix="reranker") as pool:
            return list(pool.map(self._scores, *zip(*asked, strict=True))) if asked else []

    def _scores(self, query: str, texts: Sequence[str]) -> list[float]:
        body = {"model": self._params.model, "query": query, "documents": list(texts), "top_n": len(texts)}
        reply: Any = self._service.ask(lambda client: client.post("/rerank", cast_to=object, body=body))
        try:
            score_of = {int(row["index"]): float(row["relevance_score"]) for row in reply["results"]}
        except (KeyError, TypeError, ValueError):
            score_of = {}
        if set(score_of) != set(range(len(texts))) or not all(map(math.isfinite, score_of.values())):
            raise ParamsError(
                f"{self._service.where}: the answer holds no finite score for each of {len(texts)} passages; "
                "reward.reranker.base_url must be the address of a reranker that serves /rerank, usually ending in /v1"
            )
        return [score_of[place] for place in range(len(texts))]
