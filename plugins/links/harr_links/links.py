"""More sources of candidates, and features of every candidate: titles, words and links between passages.

Besides the nearest passages, candidates are those nearest by words, those whose title the query names, and those linked
to an earlier pick: passages that it names, that name it, that have the words of the query which it lacks, or that are
its neighbours in the document.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from harr.rag.retrieval.hybrid import pad_tables
from harr.types import Search, chunk_of, list_neighbour_chunks
from harr_links.passage_graph import PassageGraph, ReadPassage, stems

FEATURES = (
    "nearest",  # 1 / (1 + rank) among the nearest by vector
    "words",  # BM25 of the query, relative to the best passage
    "titled",  # whether the query names the candidate's title
    "title_words",  # number of words in that title, divided by 3
    "query_in_title",  # share of the query's words that are in the title
    "query_in_text",  # share of the query's words that are in the candidate
    "query_new",  # share of the query's words that are in the candidate and in no pick
    "linked",  # whether a pick names the candidate's title
    "sentence",  # share of the query's words in the naming sentence, without those of the pick's title
    "window",  # the same within six words of the name
    "near",  # 1 / (1 + number of words between the name and the nearest query word)
    "led_to",  # whether a passage that the query names, picked or not, names the candidate's title
    "led_window",  # window, for such a passage
    "names_pick",  # whether the candidate names a pick's title
    "titled_first",  # titled, if nothing is picked yet
    "titled_compares",  # titled, if the query compares: "both", "or", "older"
    "words_rank",  # 1 / (1 + rank) by BM25 of the query
    "followed",  # BM25 for what a pick leads to (PassageGraph.followed), relative to the best passage
    "followed_rank",  # 1 / (1 + rank) in that search
    "title_in_pick",  # share of the title's words that are in a pick
    "pick_title_in",  # share of a pick's title words that are in the candidate
    "pick_names_in",  # three times the share of a pick's names that are in the candidate, at most 1
    "same_document",  # whether the candidate is a chunk of a pick's document
    "beside",  # 1 / distance in chunks to the nearest pick in the document
)
"""Features of a candidate, in the order of the last axis; one equal for all candidates would have no effect."""
_AT = {name: number for number, name in enumerate(FEATURES)}
_COMPARES = re.compile(r"\b(or|both|same|first|earlier|later|older|younger|more|between|longer)\b", re.IGNORECASE)


class Links:
    """Candidates and their features in one corpus.

    Args:
        graph: links of queries and passages.
        words, titled, linked, naming, followed, neighbours: maximum number of candidates of each source, the last
            four for each pick.
    """

    def __init__(
        self,
        graph: PassageGraph,
        *,
        words: int = 20,
        titled: int = 10,
        linked: int = 40,
        naming: int = 10,
        followed: int = 15,
        neighbours: int = 4,
    ) -> None:
        """Store the corpus and the sizes of the sources."""
        self.graph, self.names = graph, FEATURES
        self.words, self.titled, self.linked, self.naming, self.followed = words, titled, linked, naming, followed
        self.neighbours = neighbours

    def gather(
        self, searches: Sequence[Search], nearest: Sequence[NDArray[np.int64]], *, search: bool
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.float32]]:
        """Return the candidates of every search and their features, (B, N, F), padded with 0.

        Unless the corpus is searched (``search``), the ``nearest`` are the only candidates.
        """
        graph = self.graph
        graph.forget()
        picks = {pid for search_ in searches for pid in search_.exclude_ids}
        neighbours = [name for pid in picks for name in list_neighbour_chunks(pid, self.neighbours)]
        row_of = graph.passages.rows_of([*picks, *neighbours])  # one cached scan for all
        pools, tables = [], []
        for search_, near_N in zip(searches, nearest, strict=True):
            picked = sorted(row_of[pid] for pid in search_.exclude_ids if pid in row_of)
            near = near_N.tolist()
            near_rows = set(near)
            titles_in_query = {
                row: words
                for row, words in graph.titled(search_.query).items()
                if (graph.passages.searchable[row] if search else row in near_rows)
            }
            pool = self._candidates(search_.query, near, picked, titles_in_query) if search else near
            pools.append(np.array(pool, dtype=np.int64))
            tables.append(self._table(search_.query, near, pool, picked, titles_in_query, search=search))
        return pools, pad_tables(tables)

    def _candidates(self, query: str, near: Sequence[int], picked: Sequence[int], titled: Iterable[int]) -> list[int]:
        """Return the rows from all sources, without picks and passages outside the index."""
        graph = self.graph
        naming = [graph.find_naming(query, pick)[: self.naming] for pick in picked] if self.naming else []
        followed = [list(graph.followed(query, pick))[: self.followed] for pick in picked] if self.followed else []
        sources = (
            near,
            list(graph.search_words(query))[: self.words],
            list(titled)[: self.titled],
            [row for pick in picked for row in graph.find_named(query, pick)][: self.linked],
            chain(*naming),
            chain(*followed),
            [row for pick in picked for row in graph.neighbours(pick, self.neighbours)],
        )
        fits = graph.passages.searchable
        return [row for row in dict.fromkeys(chain(*sources)) if fits[row] and row not in picked]

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
        """Return the features of the candidates of one search, (N, F)."""
        graph, query_stems = self.graph, stems(query)
        titles, total = graph.mentions.titles, max(len(query_stems), 1)
        word_scores = graph.search_words(query) if search else {}
        picks = graph.read_passages(picked)
        picked_words = frozenset[str]().union(*(pick.words for pick in picks))
        picked_titles = {int(titles.of_row[pick]) for pick in picked}
        near_rank, words_rank = _ranks(near), _ranks(word_scores)
        compares = float(bool(_COMPARES.search(query)))
        features_NF = np.zeros((len(pool), len(FEATURES)), dtype=np.float32)
        for features_F, row, candidate in zip(features_NF, pool, graph.read_passages(pool), strict=True):
            shared, is_titled = query_stems & candidate.words, float(row in titled)
            values = {
                "nearest": near_rank.get(row, 0.0),
                "words": word_scores.get(row, 0.0),
                "titled": is_titled,
                "title_words": min(titled.get(row, 0), 6) / 3,
                "query_in_title": len(query_stems & candidate.title) / total,
                "query_in_text": len(shared) / total,
                "query_new": len(shared - picked_words) / total,
                "names_pick": float(any(title in picked_titles for title, *_ in graph.mentions.list_mentions(row))),
                "titled_first": is_titled * (not picked),
                "titled_compares": is_titled * compares,
                "words_rank": words_rank.get(row, 0.0),
                **_compare_with_picks(candidate, picks),
            }
            features_F[[_AT[name] for name in values]] = list(values.values())
        self._enter_links(query, pool, picked, list(titled)[: self.titled], features_NF, search=search)
        return features_NF

    def _enter_links(
        self,
        query: str,
        pool: Sequence[int],
        picked: Sequence[int],
        titled: Sequence[int],
        features_NF: NDArray[np.float32],
        *,
        search: bool,
    ) -> None:
        """Fill in the features of links from the picks and from passages that the query names."""
        place = {row: number for number, row in enumerate(pool)}

        def enter(row: int, first: str, values: Sequence[float] | NDArray[np.float32]) -> None:
            if row in place:
                part = features_NF[place[row], _AT[first] : _AT[first] + len(values)]
                np.maximum(part, values, out=part)

        for pick in picked:
            for row, fit in self.graph.find_named(query, pick).items():
                enter(row, "linked", fit)
            followed = self.graph.followed(query, pick) if search and self.followed else {}
            for rank, (row, share) in enumerate(followed.items()):
                enter(row, "followed", (share, 1.0 / (1 + rank)))
        for source in titled:
            for row, fit in self.graph.find_named(query, source).items():
                enter(row, "led_to", fit[[0, 2]])


def _ranks(rows: Sequence[int] | Mapping[int, float]) -> dict[int, float]:
    """Return row -> 1 / (1 + rank), ranks from 0."""
    return {row: 1.0 / (1 + rank) for rank, row in enumerate(rows)}


def _compare_with_picks(candidate: ReadPassage, picks: Sequence[ReadPassage]) -> dict[str, float]:
    """Return features that compare a candidate with the picks: the maximum over the picks."""
    document, number = chunk_of(candidate.passage.id)
    places = (chunk_of(pick.passage.id) for pick in picks)
    distances = [abs(number - place) for name, place in places if name == document]
    return {
        "title_in_pick": max((_share(candidate.title, pick.words) for pick in picks), default=0.0),
        "pick_title_in": max((_share(pick.title, candidate.words) for pick in picks), default=0.0),
        "pick_names_in": min(1.0, 3 * max((_share(pick.names, candidate.words) for pick in picks), default=0.0)),
        "same_document": float(bool(distances)),
        "beside": max((1.0 / max(distance, 1) for distance in distances), default=0.0),
    }


def _share(words: frozenset[str], has: frozenset[str]) -> float:
    return len(words & has) / max(len(words), 1)
