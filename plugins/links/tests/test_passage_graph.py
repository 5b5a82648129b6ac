"""Where passages lead; each is read once, and forgotten when there are many."""

from pathlib import Path
from typing import Any

import pytest
from harr_links import passage_graph as module
from harr_links.passage_graph import PassageGraph
from shelves import leads_of

from harr.types import Passage

SHELF = (
    Passage("film", "It was directed by Ada Brown of Bath. The Music is by Carl Dean.", "The Old Mill"),
    Passage("ada", "Ada Brown was born in Bath and directed The Old Mill.", "Ada Brown"),
    Passage("carl", "Carl Dean was born in Hull; he wrote for The Old Mill.", "Carl Dean"),
    Passage("hull", "Hull is a port.", "Hull"),
)
FILM, ADA, CARL, HULL = range(4)
QUERY = "Where was the director of The Old Mill born?"


@pytest.fixture
def leads(tmp_path: Path) -> PassageGraph:
    return leads_of(tmp_path, SHELF)


def test_by_title_by_name_and_by_words(leads: PassageGraph) -> None:
    assert leads.titled(QUERY) == {FILM: 3} and leads.titled(QUERY) is leads.titled(QUERY)
    assert list(leads.find_named(QUERY, FILM)) == [ADA, CARL] and list(leads.find_named(QUERY, CARL)) == [HULL, FILM]
    assert leads.find_naming(QUERY, FILM) == [ADA, CARL], "Ada's passage has most of the query"
    assert leads.find_naming(QUERY, HULL) == [CARL] and next(iter(leads.search_words(QUERY))) == ADA
    followed = leads.followed(
        QUERY, FILM
    )  # Which lacks born. Its title, Ada Brown, Bath, Music and Carl Dean are sought.
    assert followed.keys() == {ADA, CARL} and followed[ADA] == 1.0 > followed[CARL] > 0.0
    assert leads.followed("port?", ADA).keys() == {FILM, CARL, HULL}, "port stands in Hull's passage alone"


def test_passages_are_read_once_until_there_are_many(leads: PassageGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    take = leads.passages.take

    def counting(rows: Any) -> list[Passage]:
        taken.extend(rows)
        return take(rows)

    monkeypatch.setattr(leads.passages, "take", counting)
    for _ in range(2):
        leads.find_named(QUERY, FILM), leads.find_naming(QUERY, FILM), leads.followed(QUERY, FILM)
        leads.forget()
    assert sorted(taken) == [FILM, ADA, CARL]
    monkeypatch.setattr(module, "MAX_CACHED", 2)
    leads.forget()
    assert [read.passage.id for read in leads.read_passages([ADA, ADA])] == ["ada", "ada"] and taken[3:] == [ADA]
