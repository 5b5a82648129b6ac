"""Follow the titles: passages named in the query, then passages named in those, then BM25; nothing is learnt.

Entity-centric retrieval (Godbole et al., arXiv 1909.07598) without its reader: on corpora with titles, such as
Wikipedia's, it is the strongest simple baseline there is.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from harr.compute import distributed
from harr.corpus.passages import Passages
from harr.errors import CorpusError
from harr.index.passage_index import STOP_WORDS, PassageIndex
from harr.types import Passage, Retrieval, Search

FOLLOWED = 10
"""Number of named passages whose own mentions are followed."""
PER_TITLE = 20
"""Maximum number of passages of one title; a document may have been cut into many."""
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\b[JSDM]r\.)(?<!\bSt\.)\s+")
"""A gap between sentences: not after an initial ("S. Sylvan Simon") or a short title."""
_QUALIFIER = re.compile(r"\s*\([^()]*\)\s*$")
_STOP = frozenset(STOP_WORDS.split())


class Titles:
    """The titles of a corpus by their words, and the rows of each: one pass over the titles, none per search."""

    def __init__(self, titles: pa.ChunkedArray) -> None:
        """Read the ``titles`` of all passages, in the order of their rows."""
        coded = pc.dictionary_encode(titles.combine_chunks() if isinstance(titles, pa.ChunkedArray) else titles)
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        codes_R = np.asarray(coded.indices)
        self._rows = np.argsort(codes_R, kind="stable")
        self._first = np.searchsorted(codes_R[self._rows], np.arange(len(coded.dictionary) + 1))
        self._codes: dict[str, list[int]] = {}
        self._longest: dict[str, int] = {}
        for code, title in enumerate(coded.dictionary.to_pylist()):
            for words in {tuple(_WORD.findall(_QUALIFIER.sub("", title))), tuple(_WORD.findall(title))}:
                if words and (len(words) > 1 or _is_name(words[0])):
                    self._codes.setdefault(" ".join(words).casefold(), []).append(code)
                    first = words[0].casefold()
                    self._longest[first] = max(self._longest.get(first, 0), len(words))

    def __len__(self) -> int:
        """Return how many names there are."""
        return len(self._codes)

    def named_in(self, text: str) -> list[tuple[int, int]]:
        """Return the titles that a text names, as (code, number of words), each once, where they first stand.

        The longest title that begins at a word counts, and none within it; a title of one word must be written with a
        capital.
        """
        words = _WORD.findall(text)
        folded = [word.casefold() for word in words]
        found: dict[int, int] = {}
        place = 0
        while place < len(words):
            longest = min(self._longest.get(folded[place], 0), len(words) - place)
            for length in range(longest, 0, -1):
                name = " ".join(folded[place : place + length])
                if name in self._codes and (length > 1 or _is_name(words[place])):
                    found |= {code: length for code in self._codes[name] if code not in found}
                    place += length - 1
                    break
            place += 1
        return list(found.items())

    def rows(self, code: int) -> NDArray[np.int64]:
        """Return the rows of a title, at most ``PER_TITLE``."""
        return self._rows[self._first[code] : self._first[code + 1]][:PER_TITLE]


def _is_name(word: str) -> bool:
    return word[0].isupper() and word.casefold() not in _STOP


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text that are no stop words, in lower case.

    >>> sorted(content_words("Who is the director of the film?"))
    ['director', 'film']
    """
    return frozenset(_WORD.findall(text.casefold())) - _STOP


@dataclass
class MentionRetriever:
    """A retriever that ranks by titles, and fills up by BM25 of the query.

    First the passages whose title the query names, those of longer titles first; then passages whose title is named in
    one of these, by how many words the naming sentence shares with the query; then BM25. Passages of one title are in
    the order of the words that they share with the query. A title is compared without a qualifier in brackets.
    """

    index: PassageIndex
    passages: Passages
    k: int
    candidates: str
    fetch: int = 1000
    titles: Titles = field(init=False)
    _searchable: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        """Read the titles of all passages.

        Raises:
            CorpusError: no passage has a title.
        """
        self.titles = Titles(self.passages.titles)
        self._searchable = frozenset(self.passages.searchable_rows().tolist())
        if not len(self.titles):
            raise CorpusError("the arm mention goes by titles, and no passage has one; leave it out of evaluate.arms")

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Answer all searches: one search of BM25, and two reads of passages."""
        return distributed.main_process_only(lambda: self._found(searches))

    def _found(self, searches: Sequence[Search]) -> list[Retrieval]:
        queries = list(dict.fromkeys(search.query for search in searches))
        longest = max(len(search.exclude_ids) + (search.k or self.k) for search in searches)
        filled_QN, _ = self.index.search_text(queries, self.fetch if self.candidates == "question" else longest)
        ranking = dict(zip(queries, self._rankings(queries, filled_QN.tolist()), strict=True))
        chosen = [self._best(search, ranking[search.query]) for search in searches]
        rows = sorted({row for best in chosen for row in best})
        passage_of = dict(zip(rows, self.passages.take(rows), strict=True))
        return [Retrieval(tuple(passage_of[row] for row in best)) for best in chosen]

    def _rankings(self, queries: Sequence[str], filled: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the rows of every query, best first."""
        named = [self.titles.named_in(query) for query in queries]
        first = [list(filter(self._open, (r for code, _ in found for r in self.titles.rows(code)))) for found in named]
        passage_of = self._passages(first)
        words = [content_words(query) for query in queries]
        shared = cache(lambda query, row: len(words[query] & content_words(passage_of[row].content)))
        for query, found in enumerate(named):
            length = {row: size for code, size in found for row in self.titles.rows(code).tolist()}
            first[query].sort(key=lambda row: (-length[row], -shared(query, row)))
        naming = [
            list(self._named_by([passage_of[row] for row in rows[:FOLLOWED]], words[query]))
            for query, rows in enumerate(first)
        ]
        second = [[row for _, rows in found for row in rows] for found in naming]
        passage_of |= self._passages(second)
        for query, pairs in enumerate(naming):
            score: dict[int, int] = {}
            for overlap, rows in pairs:
                score |= {row: max(overlap, score.get(row, 0)) for row in rows}
            second[query] = sorted(score, key=lambda row: (-score[row], -shared(query, row)))
        return [list(dict.fromkeys([*a, *b, *rest])) for a, b, rest in zip(first, second, filled, strict=True)]

    def _named_by(self, passages: Sequence[Passage], words: frozenset[str]) -> Iterator[tuple[int, list[int]]]:
        """Yield the rows of every title that passages name, with the words that the naming sentence shares."""
        for passage in passages:
            for sentence in _SENTENCE.split(passage.text):
                overlap = len(words & content_words(sentence))
                for code, _ in self.titles.named_in(sentence):
                    yield overlap, self.titles.rows(code).tolist()

    def _passages(self, rows: Iterable[Iterable[int]]) -> dict[int, Passage]:
        wanted = sorted({row for part in rows for row in part})
        return dict(zip(wanted, self.passages.take(wanted), strict=True))

    def _best(self, search: Search, ranked: Sequence[int]) -> list[int]:
        skip = set(self.passages.rows_of(search.exclude_ids).values())
        given = set(self.passages.rows_of(search.question.candidate_ids).values())
        left = [row for row in ranked if row >= 0 and row not in skip]
        fits = [row for row in left if self._open(row) and (self.candidates == "corpus" or row in given)]
        return fits[: search.k or self.k]

    def _open(self, row: int) -> bool:
        """Return whether a row may be read: of a corpus that is searched, what is in the index."""
        return self.candidates == "question" or row in self._searchable
