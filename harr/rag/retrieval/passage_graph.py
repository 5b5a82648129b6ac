"""Where a passage leads: what it names, what names it, and what is found by what it lacks of a query.

All is kept for a while, since the searches of a question come back to the same passages.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harr.corpus.passages import Passages
from harr.index.mentions import Mentions, content_words
from harr.index.words import STOP, WORD, WordIndex, words_of
from harr.types import Passage, chunks_beside

WINDOW = 6
"""Number of words on either side of a name that count as near it."""
FOLLOWED = 40
"""Maximum number of names in a passage that are followed, and of passages that name it which are read."""
FOUND = 100
"""Number of passages whose BM25 in a search by words is known; the first of them are candidates."""
REMEMBERED = 100_000
"""Number of passages above which what was read is forgotten."""
_CAPITAL = re.compile(r"\b[A-Z]\w+")


def stems(text: str) -> frozenset[str]:
    """Return the first five letters of each content word of a text, which stand for its stem.

    >>> sorted(stems("The director directed it."))
    ['direc']
    """
    return frozenset(word[:5] for word in content_words(text))


class Read(NamedTuple):
    """A passage that was read, and the stems of all its words, of its title, and of its words with a capital."""

    passage: Passage
    words: frozenset[str]
    title: frozenset[str]
    names: frozenset[str]


class PassageGraph:
    """What the queries and passages of one corpus lead to; ``passages``, ``mentions`` and ``index`` are of that."""

    def __init__(self, passages: Passages, mentions: Mentions, index: WordIndex) -> None:
        """Remember the corpus; what is read of it is kept for a while."""
        self.passages, self.mentions, self.index = passages, mentions, index
        self._read: dict[int, Read] = {}
        self._found: dict[str, dict[int, float]] = {}
        self._titled: dict[str, dict[int, int]] = {}
        self._named: dict[tuple[str, int], dict[int, NDArray[np.float32]]] = {}
        self._naming: dict[tuple[str, int], list[int]] = {}
        self._followed: dict[tuple[str, int], dict[int, float]] = {}

    def forget(self) -> None:
        """Forget what was read, where that is much."""
        if len(self._read) > REMEMBERED:
            for kept in (self._read, self._found, self._titled, self._named, self._naming, self._followed):
                kept.clear()

    def read(self, rows: Iterable[int]) -> list[Read]:
        """Return passages by row, each read once."""
        rows = list(rows)
        unseen = [row for row in dict.fromkeys(rows) if row not in self._read]
        for row, passage in zip(unseen, self.passages.take(unseen), strict=True):
            names = stems(" ".join(_CAPITAL.findall(passage.text)))
            self._read[row] = Read(passage, stems(passage.content), stems(passage.title), names)
        return [self._read[row] for row in rows]

    def found(self, query: str) -> dict[int, float]:
        """Return row -> BM25 over that of the best, of the best passages by the words of a query, best first; kept."""
        if query not in self._found:
            self._found[query] = self.index.best(words_of(query), FOUND)
        return self._found[query]

    def titled(self, query: str) -> dict[int, int]:
        """Return row -> words of the title, of the passages whose title a query names, in their order there; kept."""
        if query not in self._titled:
            titles = self.mentions.titles
            longest: dict[int, int] = {}
            for one in titles.named_in(query):
                longest[one.title] = max(one.words, longest.get(one.title, 0))
            self._titled[query] = {
                row: words for title, words in longest.items() for row in titles.rows(title).tolist()
            }
        return self._titled[query]

    def named(self, query: str, source: int) -> dict[int, NDArray[np.float32]]:
        """Return row -> (1, sentence, window, near) of the passages whose title a passage names, as :func:`fit` tells;
        kept."""
        if (query, source) not in self._named:
            (own,) = self.read([source])
            asked, titles = stems(query), self.mentions.titles
            found: dict[int, NDArray[np.float32]] = {}
            for title, start, end in self.mentions.named_by(source)[:FOLLOWED]:
                rows = titles.rows(title).tolist()
                words = WORD.findall(self.read(rows[:1])[0].passage.title.casefold())
                at = fit(own.passage.text[start:end], frozenset(words), asked - own.title, max(len(asked), 1))
                found |= {row: np.maximum(at, found.get(row, 0.0)) for row in rows if row != source}
            self._named[query, source] = found
        return self._named[query, source]

    def naming(self, query: str, source: int) -> list[int]:
        """Return rows of the passages that name a passage's title, those first that have most of the query; kept."""
        if (query, source) not in self._naming:
            asked = stems(query)
            rows = self.mentions.naming(int(self.mentions.titles.of_row[source]))[:FOLLOWED].tolist()
            has = dict(zip(rows, self.read(rows), strict=True))
            self._naming[query, source] = sorted(rows, key=lambda row: -len(asked & has[row].words))
        return self._naming[query, source]

    def followed(self, query: str, source: int) -> dict[int, float]:
        """Return row -> BM25 over that of the best, best first, for what a passage leads to; kept.

        These are the words of the query that it lacks, its title, and the words in its text with a capital.
        """
        if (query, source) not in self._followed:
            (own,) = self.read([source])
            words = [word for word in words_of(query) if word[:5] not in own.words] + words_of(own.passage.title)
            words += [word.casefold() for word in _CAPITAL.findall(own.passage.text)]
            found = self.index.best(dict.fromkeys(word for word in words if word not in STOP), FOUND)
            found.pop(source, None)
            best = max(found.values(), default=1.0)
            self._followed[query, source] = {row: score / best for row, score in found.items()}
        return self._followed[query, source]

    def neighbours(self, source: int, most: int) -> list[int]:
        """Return rows of at most so many chunks of a chunk's document, nearest first; of what is no chunk, none."""
        (own,) = self.read([source])
        names = chunks_beside(own.passage.id, most)
        row_of = self.passages.rows_of(names)
        return [row_of[name] for name in names if name in row_of][:most]


def fit(sentence: str, name: frozenset[str], asked: frozenset[str], total: int) -> NDArray[np.float32]:
    """Return how well the place where a sentence has a name fits what is asked: (1, sentence, window, near).

    >>> fit("It was directed by Ada Brown.", frozenset({"ada", "brown"}), frozenset({"direc", "died"}), 2).tolist()
    [1.0, 0.5, 0.5, 0.3333333432674408]
    """
    words = [word.casefold() for word in WORD.findall(sentence)]
    at = [place for place, word in enumerate(words) if word in name] or [0]
    asked_at = [place for place, word in enumerate(words) if word[:5] in asked and word not in name]
    low, high = at[0] - WINDOW, at[-1] + WINDOW
    near = min((min(abs(place - one) for one in at) for place in asked_at), default=None)
    window = {words[place][:5] for place in asked_at if low <= place <= high}
    everywhere = {words[place][:5] for place in asked_at}
    return np.array([1.0, len(everywhere) / total, len(window) / total, 1 / (1 + near) if near else 0.0], np.float32)
