"""The reward term ``relevance``: a reranker's score of a search's passages for its sub-query.

As in HARR (arXiv 2602.03645) it is a reward per step: the mean score of the step's passages, from a server with
Cohere's ``/rerank``, such as vLLM or SGLang, or from a local cross-encoder.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from harr.errors import ModelError, ParamsError
from harr.io.files import read_json
from harr.io.model_folder import find_folder, load_safely
from harr.params.reward import RerankerParams
from harr.params.servers import ServerParams
from harr.types import Episode, Value

SETTINGS = "config_sentence_transformers.json"
Score = Callable[[Sequence[tuple[str, Sequence[str]]]], list[list[float]]]
"""A function from several queries, each with its texts, to one score per text."""


def relevances(score: Score, episodes: Sequence[Episode]) -> list[Value]:
    """Return per step the mean score of its passages for its sub-query, 0.0 without passages.

    The main process scores every pair of sub-query and passage once, with one request per sub-query.
    """
    from harr.compute import distributed  # loads torch, which defining a reward does not need

    steps = [step for episode in episodes for step in episode.steps]
    texts_of: dict[str, dict[str, None]] = {}
    for step in steps:
        texts_of.setdefault(step.search.query, {}).update({p.content: None for p in step.retrieval.passages})
    pairs = [(query, list(texts)) for query, texts in texts_of.items() if texts]
    scores = distributed.main_process_only(lambda: score(pairs))
    score_of = {query: dict(zip(texts, row, strict=True)) for (query, texts), row in zip(pairs, scores, strict=True)}

    def mean(query: str, texts: Sequence[str]) -> float:
        return sum(score_of[query][text] for text in texts) / len(texts) if texts else 0.0

    return [
        [mean(step.search.query, [p.content for p in step.retrieval.passages]) for step in episode.steps]
        for episode in episodes
    ]


def open_reranker(params: RerankerParams, name: str) -> Score:
    """Open the reranker in section ``name`` of params.yaml: a server, or a local model.

    Raises:
        ModelError: the model cannot be found or loaded, or is no cross-encoder.
    """
    return Reranker(params, params.server, name) if params.server else _cross_encoder(params.model, f"{name}.model")


@dataclass(frozen=True)
class CrossEncoderScores:
    """A cross-encoder, which reads query and passage together; a score is its logit."""

    model: Any

    def __call__(self, requests: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        """Return the scores of the texts of every query, in their order; all pairs are batched by length."""
        from torch.nn import Identity

        pairs = [(query, text) for query, texts in requests for text in texts]
        if not pairs:
            return [[] for _ in requests]
        order = sorted(range(len(pairs)), key=lambda place: -sum(map(len, pairs[place])))
        raw = self.model.predict([pairs[place] for place in order], activation_fn=Identity(), show_progress_bar=False)
        score_of = dict(zip(order, raw.tolist(), strict=True))
        places = iter(range(len(pairs)))
        return [[round(score_of[next(places)], 6) for _ in texts] for _, texts in requests]


@lru_cache(maxsize=1)  # the reward and an arm may use the same one
def _cross_encoder(name: str, parameter: str) -> CrossEncoderScores:
    """Load a cross-encoder as float32, without running code or pickles from its folder."""
    from sentence_transformers import CrossEncoder

    folder = find_folder(name, parameter)
    facts = [read_json(path) if (path := folder / file).exists() else {} for file in (SETTINGS, "config.json")]
    shapes = facts[1].get("architectures") or [""]
    if facts[0].get("model_type") != "CrossEncoder" and not str(shapes[0]).endswith("ForSequenceClassification"):
        raise ModelError(f"model {name!r} scores no pairs of texts; set {parameter} to a cross-encoder")
    model = load_safely(CrossEncoder, name, folder, None)
    if model.num_labels != 1:
        raise ModelError(f"model {name!r} has {model.num_labels} labels, not one score; set {parameter} to a reranker")
    return CrossEncoderScores(model)


class Reranker:
    """A reranker at ``server`` + ``/rerank``, with up to ``concurrency`` queries at a time.

    Failed attempts are retried as :class:`harr.services.openai_client.Service` describes.
    """

    def __init__(self, params: RerankerParams, server: ServerParams, name: str) -> None:
        from harr.services.openai_client import Service  # applications that only search do not need it

        self._model, self._server = params.model, server
        self._service = Service(name, server=server, model=params.model)

    def __call__(self, requests: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        """Return the scores of the texts of every query, in their order.

        Raises:
            ServiceUnavailable: no answer, or only 429 and 5xx answers, until the deadline.
            ParamsError: the server refuses a request, or does not answer with one score per text.
        """
        with ThreadPoolExecutor(self._server.concurrency, thread_name_prefix="reranker") as pool:
            return list(pool.map(self._scores, *zip(*requests, strict=True))) if requests else []

    def _scores(self, query: str, texts: Sequence[str]) -> list[float]:
        body = {"model": self._model, "query": query, "documents": list(texts), "top_n": len(texts)}
        reply: Any = self._service.ask(lambda client: client.post("/rerank", cast_to=object, body=body))
        try:
            score_of = {int(row["index"]): float(row["relevance_score"]) for row in reply["results"]}
        except (KeyError, TypeError, ValueError):
            score_of = {}
        if set(score_of) != set(range(len(texts))) or not all(map(math.isfinite, score_of.values())):
            raise ParamsError(
                f"{self._service.where}: the answer holds no finite score for each of {len(texts)} passages; "
                f"{self._server.place}.urls must be the address of a reranker that serves /rerank, usually ending in /v1"
            )
        return [score_of[place] for place in range(len(texts))]
