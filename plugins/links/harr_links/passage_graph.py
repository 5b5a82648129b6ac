"""Links of passages: what a passage names, what names it, and a search for the query's words that it lacks.

Results are cached, since the searches of a question return to the same passages.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray

from harr.characters import fold, list_words
from harr.corpus.passages import Passages
from harr.types import Passage, list_neighbour_chunks
from harr_links.mentions import Mentions, content_words
from harr_links.words import STOP, WordIndex, words_of

WINDOW = 6
"""Number of words on either side of a name that count as near."""
FOLLOWED = 40
"""Maximum number of names in a passage that are followed, and of passages naming it that are read."""
WORD_HITS = 100
"""Number of hits of a word search; the first ones are candidates."""
MAX_CACHED = 100_000
"""Maximum number of passages in the cache."""
_CAPITAL = regex.compile(r"\b(?:[A-Z]|[\p{Lu}--\p{Latin}])[\w\p{N}]+", regex.V1)


def stems(text: str) -> frozenset[str]:
    """Return the first five letters of each content word of a text, as its stem.

    >>> sorted(stems("The director directed it."))
    ['direc']
    """
    return frozenset(word[:5] for word in content_words(text))


class ReadPassage(NamedTuple):
    """A passage with the stems of all its words, of its title and of its capitalised words."""

    passage: Passage
    words: frozenset[str]
    title: frozenset[str]
    names: frozenset[str]


class PassageGraph:
    """The links of queries and passages in one corpus, from its ``passages``, ``mentions`` and word ``index``."""

    def __init__(self, passages: Passages, mentions: Mentions, index: WordIndex) -> None:
        """Store the corpus; the caches start empty."""
        self.passages, self.mentions, self.index = passages, mentions, index
        self._read: dict[int, ReadPassage] = {}
        self._word_scores: dict[str, dict[int, float]] = {}
        self._titled: dict[str, dict[int, int]] = {}
        self._named: dict[tuple[str, int], dict[int, NDArray[np.float32]]] = {}
        self._naming: dict[tuple[str, int], list[int]] = {}
        self._followed: dict[tuple[str, int], dict[int, float]] = {}

    def forget(self) -> None:
        """Clear the caches if they are large."""
        if len(self._read) > MAX_CACHED:
            for cache in (self._read, self._word_scores, self._titled, self._named, self._naming, self._followed):
                cache.clear()

    def read_passages(self, rows: Iterable[int]) -> list[ReadPassage]:
        """Return passages by row, each read once."""
        rows = list(rows)
        unseen = [row for row in dict.fromkeys(rows) if row not in self._read]
        for row, passage in zip(unseen, self.passages.take(unseen), strict=True):
            names = stems(" ".join(_CAPITAL.findall(passage.text)))
            self._read[row] = ReadPassage(passage, stems(passage.content), stems(passage.title), names)
        return [self._read[row] for row in rows]

    def search_words(self, query: str) -> dict[int, float]:
        """Return row -> BM25 relative to the best, for the passages that best match a query's words, best first."""
        if query not in self._word_scores:
            self._word_scores[query] = self.index.find_best(words_of(query), WORD_HITS)
        return self._word_scores[query]

    def titled(self, query: str) -> dict[int, int]:
        """Return row -> number of words in the title, for passages whose title a query names, in the query's order."""
        if query not in self._titled:
            titles = self.mentions.titles
            longest: dict[int, int] = {}
            for mention in titles.find_mentions(query):
                longest[mention.title] = max(mention.words, longest.get(mention.title, 0))
            self._titled[query] = {
                row: words for title, words in longest.items() for row in titles.rows(title).tolist()
            }
        return self._titled[query]

    def find_named(self, query: str, source: int) -> dict[int, NDArray[np.float32]]:
        """Return row -> (1, sentence, window, near) of :func:`fit`, for passages whose title ``source`` names."""
        if (query, source) not in self._named:
            (node,) = self.read_passages([source])
            terms, titles = stems(query), self.mentions.titles
            fits: dict[int, NDArray[np.float32]] = {}
            for title, start, end in self.mentions.list_mentions(source)[:FOLLOWED]:
                rows = titles.rows(title).tolist()
                words = list_words(self.read_passages(rows[:1])[0].passage.title)
                values = fit(node.passage.text[start:end], frozenset(words), terms - node.title, max(len(terms), 1))
                fits |= {row: np.maximum(values, fits.get(row, 0.0)) for row in rows if row != source}
            self._named[query, source] = fits
        return self._named[query, source]

    def find_naming(self, query: str, source: int) -> list[int]:
        """Return rows of the passages that name the title of ``source``, those with most of the query's words first."""
        if (query, source) not in self._naming:
            query_stems = stems(query)
            rows = self.mentions.rows_naming(int(self.mentions.titles.of_row[source]))[:FOLLOWED].tolist()
            passage_of = dict(zip(rows, self.read_passages(rows), strict=True))
            self._naming[query, source] = sorted(rows, key=lambda row: -len(query_stems & passage_of[row].words))
        return self._naming[query, source]

    def followed(self, query: str, source: int) -> dict[int, float]:
        """Return row -> BM25 relative to the best, best first, in a search for what a passage leads to.

        The search is for the query's words that the passage lacks, its title, and the capitalised words of its text.
        """
        if (query, source) not in self._followed:
            (node,) = self.read_passages([source])
            words = [word for word in words_of(query) if word[:5] not in node.words] + words_of(node.passage.title)
            words += [fold(word) for word in _CAPITAL.findall(node.passage.text)]
            scores = self.index.find_best(dict.fromkeys(word for word in words if word not in STOP), WORD_HITS)
            scores.pop(source, None)
            best = max(scores.values(), default=1.0)
            self._followed[query, source] = {row: score / best for row, score in scores.items()}
        return self._followed[query, source]

    def neighbours(self, source: int, most: int) -> list[int]:
        """Return rows of at most ``most`` neighbouring chunks in the document, nearest first; [] if not a chunk."""
        (passage,) = self.read_passages([source])
        names = list_neighbour_chunks(passage.passage.id, most)
        row_of = self.passages.rows_of(names)
        return [row_of[name] for name in names if name in row_of][:most]


def fit(sentence: str, name: frozenset[str], query_stems: frozenset[str], total: int) -> NDArray[np.float32]:
    """Return how well a sentence that contains a name fits the query: (1, sentence, window, near).

    >>> fit("It was directed by Ada Brown.", frozenset({"ada", "brown"}), frozenset({"direc", "died"}), 2).tolist()
    [1.0, 0.5, 0.5, 0.3333333432674408]
    """
    words = list_words(sentence)
    at = [place for place, word in enumerate(words) if word in name] or [0]
    query_places = [place for place, word in enumerate(words) if word[:5] in query_stems and word not in name]
    low, high = at[0] - WINDOW, at[-1] + WINDOW
    near = min((min(abs(place - place_of_name) for place_of_name in at) for place in query_places), default=None)
    window = {words[place][:5] for place in query_places if low <= place <= high}
    everywhere = {words[place][:5] for place in query_places}
    return np.array([1.0, len(everywhere) / total, len(window) / total, 1 / (1 + near) if near else 0.0], np.float32)
