"""Passages by the titles that are named."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harr_links.mention import MentionRetriever
from shelves import leads_of

from harr.errors import CorpusError
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


class Index:
    """Full text that always finds this passage, or none (-1)."""

    def __init__(self, row: int) -> None:
        self.row, self.calls = row, 0

    def search_text(self, texts: Sequence[str], n: int) -> tuple[Any, Any]:
        self.calls += 1
        return np.array([[self.row, *[-1] * (n - 1)]] * len(texts)), None


def retriever(
    folder: Path, shelf: Sequence[Passage] = SHELF, candidates: str = "corpus", row: int = len(SHELF) - 1, **hidden: Any
) -> MentionRetriever:
    leads = leads_of(folder, shelf, **hidden)
    return MentionRetriever(Index(row), leads.passages, leads.mentions, 5, candidates)  # type: ignore[arg-type]


def ids(player: MentionRetriever, search: Search) -> list[str]:
    (found,) = player.retrieve([search])
    return [passage.id for passage in found.passages]


ASKED = Question("q", "Where was the director of The Old Mill born, is it known?")


def test_named_passages_come_first_then_those_that_they_name_then_full_text(tmp_path: Path) -> None:
    """ "directed by Ada Brown" shares no more words than the music does, so passages of the query's words decide."""
    player = retriever(tmp_path)
    found = ids(player, Search(ASKED, ASKED.text))
    assert found[0] == "film" and set(found[1:4]) == {"ada", "ada2", "carl"} and found[4] == "rest"
    assert found[1] == "ada"  # "born" is in it
    assert ids(player, Search(ASKED, "Who says that Ada Brown swam?"))[:2] == ["ada2", "ada"], "of one name as well"
    for number, name in enumerate(found):
        later = Search(ASKED, ASKED.text, (), frozenset(found[:number]), 1)
        assert ids(player, later) == [name], "a pick takes the place of its number"


def test_given_passages_only_and_many_searches_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Question("q", ASKED.text, candidate_ids=("ada", "mill", "rest"))
    player = retriever(tmp_path, candidates="question")
    assert ids(player, Search(given, given.text)) == ["ada", "rest"]
    player = retriever(tmp_path / "again")
    reads, take = [], player.passages.take
    monkeypatch.setattr(player.passages, "take", lambda rows: (reads.append(rows), take(rows))[1])
    assert len(player.retrieve([Search(ASKED, ASKED.text), Search(ASKED, "Who is Carl Dean?")] * 8)) == 16
    assert player.index.calls == 1 and len(reads) <= 3  # type: ignore[attr-defined]


def test_what_is_not_searchable_is_not_found(tmp_path: Path) -> None:
    player = retriever(tmp_path, hidden=("film", "carl"))
    assert ids(player, Search(ASKED, ASKED.text)) == ["rest"], "nor is what it names"


def test_an_initial_ends_no_sentence(tmp_path: Path) -> None:
    shelf = [Passage("film", "It is by A. B. Carr.", "The Film"), Passage("carr", "He died.", "A. B. Carr")]
    assert ids(retriever(tmp_path, shelf, row=-1), Search(ASKED, "Who made The Film?")) == ["film", "carr"]


def test_a_corpus_without_titles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="the arm mention goes by titles, and no passage has one; leave it out"):
        retriever(tmp_path, [Passage("p", "text")])
