"""Candidates that a vector does not find, and what is known of every candidate: titles, words, and who names whom.

Beside the nearest passages compete those nearest by words, those whose title the query names, and those that a passage
which was picked before leads to: whose title it names, which name its title, which have what it lacks of the query, or
which stand beside it in its document.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from harr.rag.retrieval.hybrid import pad_tables
from harr.rag.retrieval.passage_graph import PassageGraph, Read, stems
from harr.types import Search, chunk_of, chunks_beside

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
    "same_document",  # whether it is a chunk of a pick's document
    "beside",  # 1 / number of chunks from it to the nearest pick of its document
)
"""What is known of a candidate, in the order of the last axis; what is alike for all of a search would move nothing."""
Brought = Mapping[str, Sequence[int]]
"""Rows that each source of candidates brings to a search; one passage may be of several."""
_AT = {name: number for number, name in enumerate(FEATURES)}
_COMPARES = re.compile(r"\b(or|both|same|first|earlier|later|older|younger|more|between|longer)\b", re.IGNORECASE)


class Links:
    """What is known of candidates in one corpus.

    Args:
        graph: what queries and passages lead to.
        words, titled, linked, naming, followed, neighbours: how many candidates each source may bring
            (``retriever.evidence``).
    """

    def __init__(
        self, graph: PassageGraph, *, words: int, titled: int, linked: int, naming: int, followed: int, neighbours: int
    ) -> None:
        """Take the corpus, and the sizes of the sources."""
        self.graph = graph
        self.words, self.titled, self.linked, self.naming, self.followed = words, titled, linked, naming, followed
        self.neighbours = neighbours

    def gather(
        self, searches: Sequence[Search], nearest: Sequence[NDArray[np.int64]], *, search: bool
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.float32], list[Brought]]:
        """Return the candidates of every search, what is known of them, (B, N, F), filled up with 0, and what each
        source brought.

        Where the corpus is not searched (``search``), the ``nearest`` are all there are, and no source brings any.
        """
        graph = self.graph
        graph.forget()
        picks = {pid for one in searches for pid in one.exclude_ids}
        beside = [name for pid in picks for name in chunks_beside(pid, self.neighbours)]
        row_of = graph.passages.rows_of([*picks, *beside])  # one scan for all, which is remembered
        pools, tables, brought = [], [], []
        for one, near_N in zip(searches, nearest, strict=True):
            picked = sorted(row_of[pid] for pid in one.exclude_ids if pid in row_of)
            near = near_N.tolist()
            given = set(near)
            titled = {
                row: words
                for row, words in graph.titled(one.query).items()
                if (graph.passages.searchable[row] if search else row in given)
            }
            sources = self._sources(one.query, near, picked, titled) if search else {}
            pool = list(dict.fromkeys(chain(*sources.values()))) if search else near
            pools.append(np.array(pool, dtype=np.int64))
            tables.append(self._table(one.query, near, pool, picked, titled, search=search))
            brought.append(sources)
        return pools, pad_tables(tables), brought

    def _sources(self, query: str, near: Sequence[int], picked: Sequence[int], titled: Iterable[int]) -> Brought:
        """Return what each source brings, without the picks and what is not in the index."""
        graph = self.graph
        naming = [graph.naming(query, pick)[: self.naming] for pick in picked] if self.naming else []
        followed = [list(graph.followed(query, pick))[: self.followed] for pick in picked] if self.followed else []
        brought: Brought = {
            "nearest": near,
            "words": list(graph.found(query))[: self.words],
            "titled": list(titled)[: self.titled],
            "linked": [row for pick in picked for row in graph.named(query, pick)][: self.linked],
            "naming": list(chain(*naming)),
            "followed": list(chain(*followed)),
            "neighbours": [row for pick in picked for row in graph.neighbours(pick, self.neighbours)],
        }
        fits = graph.passages.searchable
        return {name: [row for row in rows if fits[row] and row not in picked] for name, rows in brought.items()}

    def _table(
        self,
        query: str,
        near: Sequence[int],
        pool: Sequence[int],
        picked: Sequence[int],
        titled: Mapping[int, int],
        *,
        search: bool,
    ) -> NDArray[np.float32]:
        """Return what is known of the candidates of one search, (N, F)."""
        graph, asked = self.graph, stems(query)
        titles, total = graph.mentions.titles, max(len(asked), 1)
        found = graph.found(query) if search else {}
        picks = graph.read(picked)
        old = frozenset[str]().union(*(pick.words for pick in picks))
        picked_titles = {int(titles.of_row[pick]) for pick in picked}
        near_rank, words_rank = _ranks(near), _ranks(found)
        compares = float(bool(_COMPARES.search(query)))
        known_NF = np.zeros((len(pool), len(FEATURES)), dtype=np.float32)
        for known_F, row, own in zip(known_NF, pool, graph.read(pool), strict=True):
            has, named = asked & own.words, float(row in titled)
            values = {
                "nearest": near_rank.get(row, 0.0),
                "words": found.get(row, 0.0),
                "titled": named,
                "title_words": min(titled.get(row, 0), 6) / 3,
                "query_in_title": len(asked & own.title) / total,
                "query_in_text": len(has) / total,
                "query_new": len(has - old) / total,
                "names_pick": float(any(title in picked_titles for title, *_ in graph.mentions.named_by(row))),
                "titled_first": named * (not picked),
                "titled_compares": named * compares,
                "words_rank": words_rank.get(row, 0.0),
                **_in_common(own, picks),
            }
            known_F[[_AT[name] for name in values]] = list(values.values())
        self._led_to(query, pool, picked, list(titled)[: self.titled], known_NF, search=search)
        return known_NF

    def _led_to(
        self,
        query: str,
        pool: Sequence[int],
        picked: Sequence[int],
        titled: Sequence[int],
        known_NF: NDArray[np.float32],
        *,
        search: bool,
    ) -> None:
        """Enter how the candidates are led to by the picks, and by the passages that the query names."""
        place = {row: number for number, row in enumerate(pool)}

        def enter(row: int, first: str, values: Sequence[float] | NDArray[np.float32]) -> None:
            if row in place:
                part = known_NF[place[row], _AT[first] : _AT[first] + len(values)]
                np.maximum(part, values, out=part)

        for pick in picked:
            for row, fit in self.graph.named(query, pick).items():
                enter(row, "linked", fit)
            followed = self.graph.followed(query, pick) if search and self.followed else {}
            for rank, (row, share) in enumerate(followed.items()):
                enter(row, "followed", (share, 1.0 / (1 + rank)))
        for source in titled:
            for row, fit in self.graph.named(query, source).items():
                enter(row, "led_to", fit[[0, 2]])


def _ranks(rows: Sequence[int] | Mapping[int, float]) -> dict[int, float]:
    """Return row -> 1 / (1 + rank), rank from 0."""
    return {row: 1.0 / (1 + rank) for rank, row in enumerate(rows)}


def _in_common(own: Read, picks: Sequence[Read]) -> dict[str, float]:
    """Return what a candidate has in common with the pick with which it has most."""
    document, number = chunk_of(own.passage.id)
    places = (chunk_of(pick.passage.id) for pick in picks)
    apart = [abs(number - place) for name, place in places if name == document]
    return {
        "title_in_pick": max((_share(own.title, pick.words) for pick in picks), default=0.0),
        "pick_title_in": max((_share(pick.title, own.words) for pick in picks), default=0.0),
        "pick_names_in": min(1.0, 3 * max((_share(pick.names, own.words) for pick in picks), default=0.0)),
        "same_document": float(bool(apart)),
        "beside": max((1.0 / max(one, 1) for one in apart), default=0.0),
    }


def _share(words: frozenset[str], has: frozenset[str]) -> float:
    return len(words & has) / max(len(words), 1)
