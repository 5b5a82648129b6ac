"""A retriever of your own as an arm (docs/arms.md): dense search, moved towards what it finds first (Rocchio, 1971).

The vectors of the first passages are mixed into the query's, which searches again (arXiv 2108.11044).
"""

from collections.abc import Sequence

import numpy as np

from harr.builders.retrievers import RetrieverInputs
from harr.types import Retrieval, Search


class Rocchio:
    """The base encoder's search, twice; ``settings``: ``passages`` that the query moves to, and their ``weight``."""

    def __init__(self, inputs: RetrieverInputs) -> None:
        self.inputs = inputs
        self.passages, self.weight = inputs.settings.get("passages", 3), inputs.settings.get("weight", 0.3)

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Answer all searches: one pass of the encoder, two calls of the index."""
        encoder, index = self.inputs.encoder, self.inputs.index
        query_QD = encoder.encode([search.query for search in searches], prompt=encoder.plain_prompt)
        near_QN, _ = index.search(query_QD, self.passages)
        moved_QD = (1 - self.weight) * query_QD + self.weight * self.inputs.vectors.take(near_QN).mean(axis=1)
        moved_QD /= np.linalg.norm(moved_QD, axis=1, keepdims=True)
        wanted = [(search.k or self.inputs.k) + len(search.exclude_ids) for search in searches]
        rows_QN, _ = index.search(moved_QD.astype(np.float32), max(wanted))
        found = []
        for search, rows_N in zip(searches, rows_QN, strict=True):
            ranked = self.inputs.passages.take(rows_N[rows_N >= 0].tolist())
            allowed = [passage for passage in ranked if passage.id not in search.exclude_ids]
            found.append(Retrieval(tuple(allowed[: search.k or self.inputs.k])))
        return found
