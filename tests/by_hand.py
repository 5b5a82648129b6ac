"""Pipelines driven by hand: scripted replies, fixed passages, and how a game ends."""

from collections.abc import Generator as PyGenerator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from harr.builders.retrievers import RetrieverInputs
from harr.types import Generate, Outcome, Passage, Request, Retrieval, Search


def ends(game: PyGenerator[Request, Any, Outcome], answer: Any) -> Outcome:
    """Send the answer that ends this game and return its outcome."""
    with pytest.raises(StopIteration) as end:
        game.send(answer)
    outcome = end.value.value
    assert isinstance(outcome, Outcome)
    return outcome


class Script:
    """Writes its replies one after another, cut as a server cuts them, and records the requests."""

    def __init__(self, *replies: str) -> None:
        self.replies, self.asked = list(replies), list[Generate]()

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        self.asked += requests
        return [request.cut(self.replies.pop(0)) for request in requests]

    def usage(self) -> dict[str, float]:
        return {"requests": float(len(self.asked))}


class Fixed:
    """Always finds the same passages, minus the excluded ones, and records the batches of searches."""

    def __init__(self, *found: Passage) -> None:
        self.found, self.batches = found, list[list[Search]]()

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        self.batches.append(list(searches))
        left = [tuple(one for one in self.found if one.id not in search.exclude_ids) for search in searches]
        return [Retrieval(found[: search.k or None]) for found, search in zip(left, searches, strict=True)]


class Backwards:
    """A retriever from another package: the last ``k`` of the search's pool, or as many as its settings say."""

    def __init__(self, inputs: RetrieverInputs) -> None:
        self.base, self.pool, self.k = inputs.base, inputs.pool, inputs.settings.get("k", inputs.k)

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        found = self.base.retrieve([replace(search, k=self.pool) for search in searches])
        return [
            replace(one, passages=one.passages[: -self.k - 1 : -1], scores=one.scores[: -self.k - 1 : -1])
            for one in found
        ]
