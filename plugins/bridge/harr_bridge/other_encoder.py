"""Another encoder as an arm to compare with: static, larger or older, over the same passages."""

from collections.abc import Sequence

import numpy as np

from harr.builders.encoder import build_encoder
from harr.builders.retrievers import RetrieverInputs
from harr.params.embed import EncoderParams
from harr.params.faults import read_section
from harr.types import Retrieval, Search

BATCH = 256
"""Number of queries compared with all passages at once."""


class OtherEncoder:
    """Search by the vectors of another encoder, which embeds the passages in memory when the arm starts.

    ``settings`` are those of section ``encoder``: a ``model``, optionally limits and prompts (docs/arms.md).

    Raises:
        ParamsError: the settings are not those of an encoder.
    """

    def __init__(self, inputs: RetrieverInputs) -> None:
        section = read_section(EncoderParams, inputs.settings, f"evaluate.arms: settings of {type(self).__name__}")
        self.inputs, self.encoder = inputs, build_encoder(section)
        given = inputs.candidates == "question"  # these need not be searchable
        self.rows_N = np.arange(len(inputs.passages)) if given else np.flatnonzero(inputs.passages.searchable)
        texts = [passage.content for passage in inputs.passages.take(self.rows_N.tolist())]
        self.vectors_ND = self.encoder.encode(texts, prompt=self.encoder.passage_prompt)

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return the best ``k`` passages per search, by cosine with the query alone."""
        return [
            retrieval
            for first in range(0, len(searches), BATCH)
            for retrieval in self._retrieve(searches[first : first + BATCH])
        ]

    def _retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        query_QD = self.encoder.encode([search.query for search in searches], prompt=self.encoder.plain_prompt)
        scores_QN = query_QD @ self.vectors_ND.T
        ranked = []
        for search, scores_N in zip(searches, scores_QN, strict=True):
            row_of = self.inputs.passages.rows_of([*search.exclude_ids, *search.question.candidate_ids])
            only_candidates = self.inputs.candidates == "question"
            rows = [row for name, row in row_of.items() if name in search.question.candidate_ids]
            allowed_N = np.isin(self.rows_N, rows) if only_candidates else np.full(len(self.rows_N), fill_value=True)
            allowed_N &= ~np.isin(self.rows_N, [row_of[name] for name in search.exclude_ids if name in row_of])
            best = np.argsort(-np.where(allowed_N, scores_N, -np.inf), kind="stable")[: allowed_N.sum()]
            best = best[: search.k or self.inputs.k]
            passages = tuple(self.inputs.passages.take(self.rows_N[best].tolist()))
            ranked.append(Retrieval(passages, scores=tuple(scores_N[best].tolist())))
        return ranked
