"""BM25 as a retriever: the classic baseline, by Milvus full-text search."""

from collections.abc import Sequence
from dataclasses import dataclass

from harr.compute import distributed
from harr.corpus.passages import Passages
from harr.index.passage_index import PassageIndex
from harr.types import Retrieval, Search


@dataclass
class BM25Retriever:
    """A retriever that ranks the corpus, or the passages given with the question, by BM25 of the current query.

    ``fetch`` is the number of corpus passages that are ranked if only given ones count.
    """

    index: PassageIndex
    passages: Passages
    k: int
    candidates: str
    fetch: int = 1000

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return the best ``k`` passages per search; fewer if fewer share a word with the query."""
        return distributed.main_process_only(lambda: self._retrieve(searches))

    def _retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        longest = max(len(search.exclude_ids) + (search.k or self.k) for search in searches)
        queries = list(dict.fromkeys(search.query for search in searches))
        rows_QN, scores_QN = self.index.search_text(queries, self.fetch if self.candidates == "question" else longest)
        ranked = zip(queries, rows_QN.tolist(), scores_QN.tolist(), strict=True)
        score_of = {query: dict(zip(rows, scores, strict=True)) for query, rows, scores in ranked}
        chosen = [self._best(search, list(score_of[search.query])) for search in searches]
        rows = sorted({row for best in chosen for row in best})
        passage_of = dict(zip(rows, self.passages.take(rows), strict=True))
        return [
            Retrieval(tuple(passage_of[row] for row in best), scores=tuple(score_of[search.query][row] for row in best))
            for search, best in zip(searches, chosen, strict=True)
        ]

    def _best(self, search: Search, ranked: Sequence[int]) -> list[int]:
        skip = set(self.passages.rows_of(search.exclude_ids).values())
        given = set(self.passages.rows_of(search.question.candidate_ids).values())
        open_rows = [row for row in ranked if row >= 0 and row not in skip]
        return [row for row in open_rows if self.candidates == "corpus" or row in given][: search.k or self.k]
