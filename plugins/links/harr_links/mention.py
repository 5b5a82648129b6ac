"""Follow titles: passages named in the query, then passages named in those, then BM25; nothing is learnt.

Entity-centric retrieval (Godbole et al., arXiv 1909.07598) without its reader: on corpora with titles, such as
Wikipedia's, it is the strongest simple baseline.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from harr.builders.retrievers import RetrieverInputs
from harr.compute import distributed
from harr.corpus.passages import Passages
from harr.errors import CorpusError
from harr.index.passage_index import PassageIndex
from harr.types import Passage, Retrieval, Search
from harr_links.mentions import Mentions, content_words
from harr_links.tables import open_mentions

FOLLOWED = 10
"""Number of named passages whose own mentions are followed."""


@dataclass
class MentionRetriever:
    """A retriever that ranks by titles and fills up by BM25 of the query.

    Passages whose title the query names come first, longer titles before shorter ones; then passages whose title one of
    these names, by how many words the naming sentence shares with the query; then BM25. Passages of one title are
    ordered by the words they share with the query. Titles are compared without a qualifier in brackets.
    """

    index: PassageIndex
    passages: Passages
    mentions: Mentions
    k: int
    candidates: str
    fetch: int = 1000

    def __post_init__(self) -> None:
        """Check that the corpus has titles.

        Raises:
            CorpusError: no passage has a title.
        """
        if not len(self.mentions.titles):
            raise CorpusError("the arm mention goes by titles, and no passage has one; leave it out of evaluate.arms")

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Answer all searches with one BM25 search and two reads of passages; a score is 1 / rank."""
        return distributed.main_process_only(lambda: self._retrieve(searches))

    def _retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        queries = list(dict.fromkeys(search.query for search in searches))
        longest = max(len(search.exclude_ids) + (search.k or self.k) for search in searches)
        filled_QN, _ = self.index.search_text(queries, self.fetch if self.candidates == "question" else longest)
        ranking = dict(zip(queries, self._rankings(queries, filled_QN.tolist()), strict=True))
        chosen = [self._best(search, ranking[search.query]) for search in searches]
        rows = sorted({row for best in chosen for row in best})
        passage_of = dict(zip(rows, self.passages.take(rows), strict=True))
        return [
            Retrieval(
                tuple(passage_of[row] for row in best), scores=tuple(1 / rank for rank in range(1, len(best) + 1))
            )
            for best in chosen
        ]

    def _rankings(self, queries: Sequence[str], filled: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the ranked rows of every query, best first."""
        titles = self.mentions.titles
        mentions = [titles.find_mentions(query) for query in queries]
        lengths = [{row: m.words for m in hits for row in titles.rows(m.title).tolist()} for hits in mentions]
        first = [list(filter(self._open, length)) for length in lengths]
        passage_of = self._passages(first)
        words = [content_words(query) for query in queries]
        shared = cache(lambda query, row: len(words[query] & content_words(passage_of[row].content)))
        for query, length in enumerate(lengths):
            first[query].sort(key=lambda row: (-length[row], -shared(query, row)))
        naming = [
            list(self._find_linked({row: passage_of[row] for row in rows[:FOLLOWED]}, words[query]))
            for query, rows in enumerate(first)
        ]
        second = [[row for _, rows in hits for row in rows] for hits in naming]
        passage_of |= self._passages(second)
        for query, pairs in enumerate(naming):
            score: dict[int, int] = {}
            for overlap, rows in pairs:
                score |= {row: max(overlap, score.get(row, 0)) for row in rows}
            second[query] = sorted(score, key=lambda row: (-score[row], -shared(query, row)))
        return [list(dict.fromkeys([*a, *b, *rest])) for a, b, rest in zip(first, second, filled, strict=True)]

    def _find_linked(self, passages: Mapping[int, Passage], words: frozenset[str]) -> Iterator[tuple[int, list[int]]]:
        """Yield for every title that passages name how many words the naming sentence shares, and the title's rows."""
        for row, passage in passages.items():
            for title, start, end in self.mentions.list_mentions(row):
                overlap = len(words & content_words(passage.text[start:end]))
                yield overlap, self.mentions.titles.rows(title).tolist()

    def _passages(self, rows: Iterable[Iterable[int]]) -> dict[int, Passage]:
        distinct = sorted({row for part in rows for row in part})
        return dict(zip(distinct, self.passages.take(distinct), strict=True))

    def _best(self, search: Search, ranked: Sequence[int]) -> list[int]:
        skip = set(self.passages.rows_of(search.exclude_ids).values())
        given = set(self.passages.rows_of(search.question.candidate_ids).values())
        open_rows = [row for row in ranked if row >= 0 and row not in skip]
        fits = [row for row in open_rows if self._open(row) and (self.candidates == "corpus" or row in given)]
        return fits[: search.k or self.k]

    def _open(self, row: int) -> bool:
        """Return whether a row may be retrieved: when a corpus is searched, only if it is in the index."""
        return self.candidates == "question" or bool(self.passages.searchable[row])


def follow_titles(inputs: RetrieverInputs) -> MentionRetriever:
    """Return the rule as an arm: ``{name: mention, retriever: "harr_links.mention:follow_titles"}``."""
    mentions = open_mentions(inputs.passages, inputs.tables)
    return MentionRetriever(inputs.index, inputs.passages, mentions, inputs.k, inputs.candidates)
