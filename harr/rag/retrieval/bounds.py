"""Upper and lower bounds of search: retrievers that find all gold, or nothing."""

from collections.abc import Callable, Sequence

from harr.corpus.passages import Passages
from harr.types import Retrieval, Retriever, Search


class GoldRetriever:
    """A retriever that finds the gold passages first, then what another one finds.

    If a search returns only some of the gold, a later hop begins with the next passages.

    Args:
        base: the other retriever.
        passages: the corpus.
        k: number of passages that a search returns, unless it sets its own.
    """

    def __init__(self, base: Retriever, passages: Passages, k: int) -> None:
        self._base, self._passages, self._k = base, passages, k

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval per search, in order."""
        rows = self._passages.rows_of(name for search in searches for name in search.question.gold_ids)
        retrievals = []
        for search, others in zip(searches, self._base.retrieve(searches), strict=True):
            gold, k = search.question.gold_ids, search.k or self._k
            start = len(search.hops) * k % max(1, len(gold))
            left = [name for name in (*gold[start:], *gold[:start]) if name not in search.exclude_ids]
            rest = [passage for passage in others.passages if passage.id not in left]
            first = self._passages.take([rows[name] for name in left])
            retrievals.append(Retrieval((*first, *rest)[:k]))
        return retrievals


class EmptyRetriever:
    """A retriever that finds nothing, so that a language model answers from memory; arguments as above."""

    def __init__(self, base: Retriever, passages: Passages, k: int) -> None:
        pass

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval without passages per search."""
        return [Retrieval(()) for _ in searches]


BOUNDS: dict[str, Callable[[Retriever, Passages, int], Retriever]] = {"gold": GoldRetriever, "nothing": EmptyRetriever}
"""The retrievers that bound all others, by ``Arm.search``."""
