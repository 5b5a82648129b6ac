"""Candidates that a vector does not find, and what is known of every candidate: titles, words, and who names whom.

Beside the nearest passages compete those nearest by words, those whose title the query names, and those that a passage
which was picked before leads to: whose title it names, which name its title, or which have what it lacks of the query.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from harr.corpus.passages import Passages
from harr.index.mentions import Mentions, content_words
from harr.index.words import STOP, WordIndex, words_of
from harr.rag.retrieval.hybrid import pad_tables
from harr.types import Passage, Search

FEATURES = (
    "nearest",  # 1 / (1 + rank) among the nearest by vector
    "words",  # BM25 of the query over that of the best passage
    "titled",  # whether the query names its title
    "title_words",  # number of words of that title, over 3
    "query_in_title",  # share of the query's words that its title has
    "query_in_text",  # share of the query's words that it has
    "query_new",  # share of the query's words that it has and no pick has
    "linked",  # whether a pick names its title
    "sentence",  # share of the query's words in the sentence that does, without those of the pick's title
    "window",  # the same within six words of the name
    "near",  # 1 / (1 + number of words between the name and the nearest word of the query)
    "led_to",  # whether a passage that the query names, picked or not, names its title
    "led_window",  # as window, of such a passage
    "names_pick",  # whether it names the title of a pick
    "titled_first",  # titled, where nothing is picked yet
    "titled_compares",  # titled, where the query compares: "both", "or", "older"
    "words_rank",  # 1 / (1 + rank) by BM25 of the query
    "followed",  # BM25 of what a pick leads to (see Links.follow), over that of the best passage
    "followed_rank",  # 1 / (1 + rank) there
    "title_in_pick",  # share of its title's words that a pick has
    "pick_title_in",  # share of the words of a pick's title that it has
    "pick_names_in",  # three times the share of the names in a pick that it has, at most 1
)
"""What is known of a candidate, in the order of the last axis; what is alike for all of a search would move nothing."""
_AT = {name: number for number, name in enumerate(FEATURES)}
_COMPARES = re.compile(r"\b(or|both|same|first|earlier|later|older|younger|more|between|longer)\b", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"\b[A-Z]\w+")
WINDOW = 6
"""Number of words on either side of a name that count as near it."""
FOLLOWED = 40
"""Maximum number of names in a passage that are followed, and of passages that name it which are read."""
FOUND = 100
"""Number of passages whose BM25 in a search by words is known; the first of them are candidates."""
REMEMBERED = 100_000
"""Number of passages above which what was read is forgotten."""


def stems(text: str) -> frozenset[str]:
    """Return the first five letters of each content word of a text, which stand for its stem.

    >>> sorted(stems("The director directed it."))
    ['direc']
    """
    return frozenset(word[:5] for word in content_words(text))


class Links:
    """What is known of candidates in one corpus.

    Args:
        passages, mentions, index: of the same corpus.
        words, titled, linked, naming, followed: how many candidates each source may bring (``retriever.evidence``).
    """

    def __init__(
        self,
        passages: Passages,
        mentions: Mentions,
        index: WordIndex,
        *,
        words: int,
        titled: int,
        linked: int,
        naming: int,
        followed: int,
    ) -> None:
        """Remember the corpus; what is read of it is kept for a while."""
        self.passages, self.mentions, self.index = passages, mentions, index
        self.words, self.titled, self.linked, self.naming, self.followed = words, titled, linked, naming, followed
        self._searchable = frozenset(passages.searchable_rows().tolist())
        self._read: dict[int, Passage] = {}
        self._stems: dict[int, frozenset[str]] = {}
        self._capitals: dict[int, frozenset[str]] = {}
        self._named: dict[tuple[str, int], dict[int, NDArray[np.float32]]] = {}
        self._names_it: dict[tuple[str, int], list[int]] = {}
        self._found: dict[str, dict[int, float]] = {}

    def gather(
        self, searches: Sequence[Search], nearest: Sequence[NDArray[np.int64]], *, search: bool
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.float32]]:
        """Return the candidates of every search, and what is known of them, (B, N, F), filled up with 0.

        Where the corpus is not searched (``search``), the ``nearest`` are all there are.
        """
        if len(self._read) > REMEMBERED:
            for kept in (self._read, self._stems, self._capitals, self._named, self._names_it, self._found):
                kept.clear()
        pools, tables = [], []
        for one, near_N, picked in zip(searches, nearest, self._picked(searches), strict=True):
            near = dict.fromkeys(near_N.tolist())
            allowed = self._searchable if search else near
            titled = {row: words for row, words in self._titled(one.query) if row in allowed}
            by_words = self._search(one.query) if search else {}
            follows = [self.follow(one.query, pick) for pick in picked] if search and self.followed else []
            pool = near
            if search:
                more = [*list(by_words)[: self.words], *list(titled)[: self.titled]]
                more += [row for pick in picked for row in self._names(one.query, pick)][: self.linked]
                for pick, found in zip(picked, follows or [{} for _ in picked], strict=True):
                    more += self._naming(one.query, pick)[: self.naming] + list(found)[: self.followed]
                pool = dict.fromkeys(row for row in (*near, *more) if row in allowed or row in near)
                for pick in picked:
                    pool.pop(pick, None)
            self._see(pool)
            pools.append(np.fromiter(pool, dtype=np.int64))
            tables.append(self._table(one.query, list(near), list(pool), picked, titled, by_words, follows))
        return pools, pad_tables(tables)

    def _table(
        self,
        query: str,
        near: Sequence[int],
        pool: Sequence[int],
        picked: Sequence[int],
        titled: Mapping[int, int],
        by_words: Mapping[int, float],
        follows: Sequence[Mapping[int, float]],
    ) -> NDArray[np.float32]:
        """Return what is known of the candidates of one search, (N, F)."""
        asked, titles = stems(query), self.mentions.titles
        total = max(len(asked), 1)
        old = frozenset[str]().union(*(self._stems[pick] for pick in picked))
        picked_titles = {int(titles.of_row[pick]) for pick in picked}
        near_rank = {row: 1.0 / (1 + place) for place, row in enumerate(near)}
        compares = float(bool(_COMPARES.search(query)))
        words_rank = {row: 1.0 / (1 + place) for place, row in enumerate(by_words)}
        known_NF = np.zeros((len(pool), len(FEATURES)), dtype=np.float32)
        for known_F, row in zip(known_NF, pool, strict=True):
            has = asked & self._stems[row]
            named = float(row in titled)
            values = {
                "nearest": near_rank.get(row, 0.0),
                "words": by_words.get(row, 0.0),
                "titled": named,
                "title_words": min(titled.get(row, 0), 6) / 3,
                "query_in_title": len(asked & stems(self._read[row].title)) / total,
                "query_in_text": len(has) / total,
                "query_new": len(has - old) / total,
                "names_pick": float(any(title in picked_titles for title, *_ in self.mentions.named_by(row))),
                "titled_first": named * (not picked),
                "titled_compares": named * compares,
                "words_rank": words_rank.get(row, 0.0),
                **self._shared(row, picked),
            }
            for name, value in values.items():
                known_F[_AT[name]] = value
        place = {row: number for number, row in enumerate(pool)}
        for found in follows:
            for rank, (row, share) in enumerate(found.items()):
                if row in place:
                    part = known_NF[place[row], _AT["followed"] : _AT["followed_rank"] + 1]
                    np.maximum(part, (share, 1.0 / (1 + rank)), out=part)
        for pick in picked:
            for row, fit in self._names(query, pick).items():
                if row in place:
                    part = known_NF[place[row], _AT["linked"] : _AT["near"] + 1]
                    np.maximum(part, fit, out=part)
        for source in list(titled)[: self.titled]:
            for row, fit in self._names(query, source).items():
                if row in place:
                    part = known_NF[place[row], _AT["led_to"] : _AT["led_window"] + 1]
                    np.maximum(part, fit[[0, 2]], out=part)
        return known_NF

    def _shared(self, row: int, picked: Sequence[int]) -> dict[str, float]:
        """Return what a candidate and the picks have in common, of that pick with which it has most."""
        has, title = self._stems[row], stems(self._read[row].title)
        own = [(self._stems[pick], stems(self._read[pick].title), self._capitals[pick]) for pick in picked]
        return {
            "title_in_pick": max((_share(title, text) for text, *_ in own), default=0.0),
            "pick_title_in": max((_share(theirs, has) for _, theirs, _ in own), default=0.0),
            "pick_names_in": min(1.0, 3 * max((_share(names, has) for *_, names in own), default=0.0)),
        }

    def follow(self, query: str, pick: int) -> dict[int, float]:
        """Return row -> BM25 over that of the best passage, for what a pick leads to: the words of the query that it
        lacks, its title, and the words in its text that are written with a capital."""
        passage, has = self._read[pick], self._stems[pick]
        lacks = [word for word in words_of(query) if word[:5] not in has]
        names = [word.casefold() for word in _NAME.findall(passage.text) if word.casefold() not in STOP]
        return self._search(" ".join(dict.fromkeys([*lacks, *words_of(passage.title), *names])), but=pick)

    def _search(self, text: str, but: int = -1) -> dict[int, float]:
        """Return row -> BM25 over that of the best passage, best first; kept. The passage ``but`` is left out."""
        if text not in self._found:
            self._found[text] = self.index.best(words_of(text), FOUND)
        found = self._found[text]
        if but not in found:
            return found
        rest = {row: score for row, score in found.items() if row != but}
        best = max(rest.values(), default=1.0)
        return {row: score / best for row, score in rest.items()}

    def _picked(self, searches: Sequence[Search]) -> list[list[int]]:
        """Return the rows that were picked before every search."""
        row_of = self.passages.rows_of({pid for one in searches for pid in one.exclude_ids})
        self._see(row_of.values())
        return [sorted(row_of[pid] for pid in one.exclude_ids) for one in searches]

    def _titled(self, query: str) -> list[tuple[int, int]]:
        """Return (row, words of the title) of the titles that a query names, in their order there."""
        titles = self.mentions.titles
        longest: dict[int, int] = {}
        for one in titles.named_in(query):
            longest[one.title] = max(one.words, longest.get(one.title, 0))
        return [(row, words) for title, words in longest.items() for row in titles.rows(title).tolist()]

    def _names(self, query: str, source: int) -> dict[int, NDArray[np.float32]]:
        """Return row -> (1, sentence, window, near) of the passages whose title a passage names; kept."""
        if (query, source) not in self._named:
            self._see([source])
            passage = self._read[source]
            asked, own = stems(query), stems(passage.title)
            found: dict[int, NDArray[np.float32]] = {}
            for title, start, end in self.mentions.named_by(source)[:FOLLOWED]:
                fit = _fit(passage.text[start:end], self._name(title), asked - own, max(len(asked), 1))
                for row in self.mentions.titles.rows(title).tolist():
                    if row != source:
                        found[row] = np.maximum(fit, found.get(row, 0.0))
            self._named[query, source] = found
        return self._named[query, source]

    def _naming(self, query: str, pick: int) -> list[int]:
        """Return rows of passages that name the title of a pick, those first that have most of the query; kept."""
        if (query, pick) not in self._names_it:
            title, asked = int(self.mentions.titles.of_row[pick]), stems(query)
            rows = self.mentions.naming(title)[:FOLLOWED].tolist()
            self._see(rows)
            self._names_it[query, pick] = sorted(rows, key=lambda row: (-len(asked & self._stems[row]), row))
        return self._names_it[query, pick]

    def _name(self, title: int) -> frozenset[str]:
        row = int(self.mentions.titles.rows(title)[0])
        self._see([row])
        return frozenset(word.casefold() for word in _WORD.findall(self._read[row].title))

    def _see(self, rows: Iterable[int]) -> None:
        """Read passages that were not read before."""
        unseen = [row for row in rows if row not in self._read]
        for row, passage in zip(unseen, self.passages.take(unseen), strict=True):
            self._read[row], self._stems[row] = passage, stems(passage.content)
            self._capitals[row] = stems(" ".join(_NAME.findall(passage.text)))


def _share(words: frozenset[str], has: frozenset[str]) -> float:
    return len(words & has) / max(len(words), 1)


def _fit(sentence: str, name: frozenset[str], asked: frozenset[str], total: int) -> NDArray[np.float32]:
    """Return how well the place where a sentence has a name fits what is asked: (1, sentence, window, near).

    >>> _fit("It was directed by Ada Brown.", frozenset({"ada", "brown"}), frozenset({"direc", "died"}), 2).tolist()
    [1.0, 0.5, 0.5, 0.3333333432674408]
    """
    words = [word.casefold() for word in _WORD.findall(sentence)]
    at = [place for place, word in enumerate(words) if word in name] or [0]
    asked_at = [place for place, word in enumerate(words) if word[:5] in asked and word not in name]
    low, high = at[0] - WINDOW, at[-1] + WINDOW
    near = min((min(abs(place - one) for one in at) for place in asked_at), default=None)
    window = {words[place][:5] for place in asked_at if low <= place <= high}
    everywhere = {words[place][:5] for place in asked_at}
    return np.array([1.0, len(everywhere) / total, len(window) / total, 1 / (1 + near) if near else 0.0], np.float32)
