"""Passages by the titles that are named."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from harr.errors import CorpusError
from harr.index.mentions import Mentions, Titles, build_mentions
from harr.rag.retrieval.mention import MentionRetriever
from harr.types import Passage, Question, Search

SHELF = (
    Passage("film", "The Old Mill is a film. It was directed by Ada Brown. Carl Dean wrote the music.", "The Old Mill"),
    Passage("mill", "A mill grinds.", "Mill"),
    Passage("carl", "Carl Dean wrote songs.", "Carl Dean"),
    Passage("ada", "Ada Brown was born in Bath.", "Ada Brown (director)"),
    Passage("ada2", "Ada Brown swam.", "Ada Brown"),
    Passage("it", "It is a novel.", "It"),
    Passage("rest", "Directors are born.", "Born"),
)


class Corpus:
    """Passages in memory; every read is counted."""

    identity = "shelf"

    def __init__(self, passages: Sequence[Passage] = SHELF, hidden: Sequence[str] = ()) -> None:
        self.rows, self.hidden = list(passages), hidden
        self.titles = pa.chunked_array([[passage.title for passage in passages]])
        self.reads = 0

    def searchable_rows(self) -> NDArray[np.int64]:
        return np.array([row for row, passage in enumerate(self.rows) if passage.id not in self.hidden])

    @property
    def searchable(self) -> NDArray[np.bool_]:
        return np.array([passage.id not in self.hidden for passage in self.rows])

    def take(self, rows: Sequence[int]) -> list[Passage]:
        self.reads += 1
        return [self.rows[row] for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def rows_of(self, ids: Sequence[str]) -> dict[str, int]:
        return {passage.id: row for row, passage in enumerate(self.rows) if passage.id in ids}


class Index:
    """Full text that always finds this passage, or none (-1)."""

    def __init__(self, row: int) -> None:
        self.row, self.calls = row, 0

    def search_text(self, texts: Sequence[str], n: int) -> tuple[Any, Any]:
        self.calls += 1
        return np.array([[self.row, *[-1] * (n - 1)]] * len(texts)), None


def retriever(candidates: str = "corpus", corpus: Any = None, row: int = len(SHELF) - 1) -> MentionRetriever:
    corpus = corpus or Corpus()
    with TemporaryDirectory() as folder:
        build_mentions(corpus, Path(folder, "out"), Path(folder, "work"))
        mentions = Mentions.of(corpus, Path(folder, "out"))
    corpus.reads = 0
    return MentionRetriever(Index(row), corpus, mentions, 5, candidates)  # type: ignore[arg-type]


def ids(search: Search, candidates: str = "corpus", **changes: Any) -> list[str]:
    (found,) = retriever(candidates, **changes).retrieve([search])
    return [passage.id for passage in found.passages]


ASKED = Question("q", "Where was the director of The Old Mill born, is it known?")


def test_named_passages_come_first_then_those_that_they_name_then_full_text() -> None:
    """ "directed by Ada Brown" shares no more words than the music does, so passages of the query's words decide."""
    found = ids(Search(ASKED, ASKED.text))
    assert found[0] == "film" and set(found[1:4]) == {"ada", "ada2", "carl"} and found[4] == "rest"
    assert found[1] == "ada"  # "born" is in it
    for number, name in enumerate(found):
        later = Search(ASKED, ASKED.text, (), frozenset(found[:number]), 1)
        assert ids(later) == [name], "a pick takes the place of its number"


def test_given_passages_only_and_many_searches_at_once() -> None:
    given = Question("q", ASKED.text, candidate_ids=("ada", "mill", "rest"))
    assert ids(Search(given, given.text), "question") == ["ada", "rest"]
    player = retriever()
    assert len(player.retrieve([Search(ASKED, ASKED.text), Search(ASKED, "Who is Carl Dean?")] * 8)) == 16
    assert player.index.calls == 1 and player.passages.reads == 3  # type: ignore[attr-defined]


def test_the_longest_title_counts_and_a_word_alone_needs_its_capital() -> None:
    titles = Titles(Corpus().titles)
    names = [passage.title for passage in SHELF]
    read = {text: titles.named_in(text) for text in ("the old mill", "a mill", "a Mill", "It is", "ada brown")}
    named = {text: sorted(names[titles.rows(one.title)[0]] for one in found) for text, found in read.items()}
    assert named == {
        "the old mill": ["The Old Mill"],
        "a mill": [],
        "a Mill": ["Mill"],
        "It is": [],
        "ada brown": ["Ada Brown", "Ada Brown (director)"],
    }


def test_what_is_not_searchable_is_not_found() -> None:
    hidden = Corpus(hidden=("film", "carl"))
    assert ids(Search(ASKED, ASKED.text), corpus=hidden) == ["rest"], "nor is what it names"


def test_an_initial_ends_no_sentence() -> None:
    shelf = [Passage("film", "It is by A. B. Carr.", "The Film"), Passage("carr", "He died.", "A. B. Carr")]
    assert ids(Search(ASKED, "Who made The Film?"), corpus=Corpus(shelf), row=-1) == ["film", "carr"]


def test_a_corpus_without_titles_is_refused() -> None:
    with pytest.raises(CorpusError, match="the arm mention goes by titles, and no passage has one; leave it out"):
        retriever(corpus=Corpus([Passage("p", "text")]))
