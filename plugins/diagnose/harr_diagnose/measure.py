"""Figures of untrained play: gold found at every depth, queries that need the history, and detectable gains."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import pstdev

from scipy import stats

from harr.types import Episode, Question, Retrieval, Retriever, Search

POWER = 0.8
LEVEL = 0.95


@dataclass
class DeepRetriever:
    """A retriever that asks another one for ``depth`` passages, notes them, and returns the first ``k`` of each."""

    inner: Retriever
    k: int
    depth: int
    found: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    """By question id, for every search, the document of every passage in rank order."""

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return the first ``k`` passages of every search."""
        deep = self.inner.retrieve([replace(search, k=max(self.depth, search.k)) for search in searches])
        for search, retrieval in zip(searches, deep, strict=True):
            ranks = tuple(passage.document for passage in retrieval.passages)
            self.found.setdefault(search.question.id, []).append(ranks)
        counts = [search.k or self.k for search in searches]
        return [
            replace(retrieval, passages=retrieval.passages[:k], scores=retrieval.scores[:k])
            for retrieval, k in zip(deep, counts, strict=True)
        ]


def all_gold_at(
    questions: Sequence[Question], found: dict[str, list[tuple[str, ...]]], depth: int, *, by_share: bool = False
) -> list[tuple[str, float]]:
    """Return, per question with gold, its id and 1 if all gold is among the first ``depth`` of its searches, else 0;
    or, ``by_share``, the share of the gold that is.

    A policy that chooses from a pool of that many passages can find no more with the same searches.

    >>> asked = [Question("q", "Who?", gold_ids=("a", "c"))]
    >>> all_gold_at(asked, {"q": [("a", "b"), ("d", "c")]}, 1), all_gold_at(asked, {"q": [("a", "b"), ("d", "c")]}, 2)
    ([('q', 0.0)], [('q', 1.0)])
    """
    rows: list[tuple[str, float]] = []
    for question in questions:
        if question.gold_ids:
            near = {document for ranks in found.get(question.id, []) for document in ranks[:depth]}
            gold = set(question.gold_documents)
            share = len(gold & near) / len(gold)
            rows.append((question.id, share if by_share else float(share == 1.0)))
    return rows


def ambiguous_queries(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return how many later queries there were, and the share of them that only the history can tell apart.

    A query is ambiguous if another with the same words seeks another gold document: the one at the same place among the
    question's gold documents. In a sample this share is a lower bound, since a twin may not have been drawn. If every
    search is for the question itself, as when passages are picked, there are no later queries.
    """
    sought: dict[str, list[str]] = {}
    for episode in episodes:
        for step in episode.steps:
            hop, gold = len(step.search.hops), episode.question.gold_documents
            query = " ".join(step.search.query.casefold().split())
            if 0 < hop < len(gold) and query != " ".join(episode.question.text.casefold().split()):
                sought.setdefault(query, []).append(gold[hop])
    later = sum(map(len, sought.values()))
    ambiguous = sum(len(golds) for golds in sought.values() if len(set(golds)) > 1)
    return {"later_queries": float(later), "ambiguous_share": ambiguous / later if later else 0.0}


def detectable_gain(differences: Sequence[float], n: int) -> float:
    """Return the smallest mean gain that n questions show in 8 of 10 tries, at a level of 5 % (two-sided, normal).

    ``differences``: gains per question between two players on the same data; their spread stands for the one to come.

    >>> round(detectable_gain([1.0, 0.0, 0.0, -1.0], 400), 3)
    0.099
    """
    quantiles = stats.norm.ppf(0.5 + LEVEL / 2) + stats.norm.ppf(POWER)
    return float(quantiles * pstdev(differences) / math.sqrt(n))


def questions_needed(differences: Sequence[float], gain: float) -> int:
    """Return how many questions show a mean gain of this size in 8 of 10 tries.

    >>> questions_needed([1.0, 0.0, 0.0, -1.0], 0.05)
    1570
    """
    return math.ceil((detectable_gain(differences, 1) / gain) ** 2)
