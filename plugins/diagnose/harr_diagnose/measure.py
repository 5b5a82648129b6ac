"""Figures of untrained play: gold found at every depth, queries that need the history, and detectable gains."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import pstdev

from scipy import stats

from harr.types import Episode, Question, Retrieval, Retriever, Search

POWER = 0.8
LEVEL = 0.95


Found = dict[str, dict[int, set[str]]]
"""By question id and depth, the documents that its searches found."""


@dataclass
class DeepRetriever:
    """A retriever that also notes what another one finds at several ``depths``.

    Each depth is a search of its own, since a fused ranking of more passages need not begin with that of fewer; unless
    ``once``, for a source that asks for money: then the deepest is cut.
    """

    inner: Retriever
    depths: Sequence[int]
    once: bool = False
    found: Found = field(default_factory=dict)

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return what the other one does."""
        deep: list[Retrieval] = []
        for depth in sorted(self.depths, reverse=True):
            if not (deep and self.once):
                deep = self.inner.retrieve([replace(search, k=depth) for search in searches])
            for search, retrieval in zip(searches, deep, strict=True):
                documents = self.found.setdefault(search.question.id, {}).setdefault(depth, set())
                documents |= {passage.document for passage in retrieval.passages[:depth]}
        return self.inner.retrieve(searches)


def all_gold_at(
    questions: Sequence[Question], found: Found, depth: int, *, by_share: bool = False
) -> list[tuple[str, float]]:
    """Return, per question with gold, its id and 1 if all gold is among the first ``depth`` of its searches, else 0;
    or, ``by_share``, the share of the gold that is.

    A policy that chooses from a pool of that many passages can find no more with the same searches.

    >>> asked, found = [Question("q", "Who?", gold_ids=("a", "c"))], {"q": {1: {"a", "d"}, 2: {"a", "b", "d", "c"}}}
    >>> all_gold_at(asked, found, 1), all_gold_at(asked, found, 2)
    ([('q', 0.0)], [('q', 1.0)])
    """
    rows: list[tuple[str, float]] = []
    for question in questions:
        if question.gold_ids:
            gold = set(question.gold_documents)
            share = len(gold & found.get(question.id, {}).get(depth, set())) / len(gold)
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
