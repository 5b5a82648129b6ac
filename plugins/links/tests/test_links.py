"""What competes beside the nearest passages, and what is known of every candidate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harr_links.links import FEATURES, Links
from shelves import leads_of

from harr.types import Hop, Passage, Question, Search

SHELF = (
    Passage("film", "The Old Mill is new. It was directed by Ada Brown. Carl Dean wrote music.", "The Old Mill"),
    Passage("ada", "Ada Brown was born in Bath.", "Ada Brown"),
    Passage("carl", "Carl Dean wrote songs.", "Carl Dean"),
    Passage("bath", "Bath is a town.", "Bath"),
    Passage("rest", "Directors are born.", ""),
    Passage("far", "Nothing of the kind: Ada Brown.", "Far"),
)
ROW = {passage.id: row for row, passage in enumerate(SHELF)}
ASKED = Question("q", "Where was the director of The Old Mill born?", candidate_ids=("ada", "rest"))


@pytest.fixture
def links(tmp_path: Path) -> Any:
    return opened(tmp_path, SHELF)


def opened(folder: Path, shelf: Sequence[Passage]) -> Any:
    """A function that makes links over a shelf, with sources of these sizes."""
    leads = leads_of(folder, shelf, hidden=("far",))
    none = dict.fromkeys(("words", "titled", "linked", "naming", "followed", "neighbours"), 0)
    return lambda **most: Links(leads, **(none | most))


def search(*picked: str, query: str = ASKED.text) -> Search:
    return Search(ASKED, query, tuple(Hop("", name) for name in picked), frozenset(picked))


def gathered(links: Links, asked: Search, *near: str, corpus: bool = True) -> dict[str, dict[str, float]]:
    """Each candidate with what is known of it."""
    rows = np.array([ROW[name] for name in near], dtype=np.int64)
    (pool,), features_BNF = links.gather([asked], [rows], search=corpus)
    assert features_BNF.shape == (1, len(pool), len(FEATURES)) and features_BNF.dtype == np.float32
    return {
        SHELF[row].id: {name: round(float(value), 3) for name, value in zip(FEATURES, known_F, strict=True)}
        for row, known_F in zip(pool, features_BNF[0], strict=True)
    }


def test_each_source_brings_its_candidates(links: Any) -> None:
    asked = search("film")
    assert list(gathered(links(), asked, "bath")) == ["bath"], "no source, no candidate"
    assert list(gathered(links(words=2), search(), "bath")) == ["bath", "film", "rest"]
    assert list(gathered(links(titled=1), search(), "bath")) == ["bath", "film"]
    assert list(gathered(links(linked=2), asked, "bath")) == ["bath", "ada", "carl"]
    assert list(gathered(links(linked=1), asked, "bath")) == ["bath", "ada"]
    assert list(gathered(links(naming=1), search("ada"), "bath")) == ["bath", "film"], "film names Ada Brown"
    assert list(gathered(links(naming=9), search("bath"), "rest")) == ["rest", "ada"]
    assert "far" not in gathered(links(naming=9, followed=9), search("ada"), "bath"), "it is not in the index"
    assert "film" not in gathered(links(words=9, titled=9), asked, "bath"), "never a pick again"


BOOK = (
    Passage("lung_chunk_0", "It begins."),
    Passage("rest", "Something else."),
    Passage("lung_chunk_3", "It goes on."),
    Passage("lung_chunk_1", "The middle."),
    Passage("lung_chunk_2", "What follows."),
    Passage("heart_chunk_2", "Another document."),
)


def test_the_chunks_beside_a_pick_compete(tmp_path: Path, links: Any) -> None:
    """They are found wherever they stand in the corpus, nearest first, and each says how far away it is."""
    book = opened(tmp_path / "book", BOOK)

    def found(most: int, *picked: str) -> dict[str, tuple[float, ...]]:
        (pool,), features_BNF = book(neighbours=most).gather([search(*picked)], [np.array([1, 5])], search=True)
        at = [FEATURES.index(name) for name in ("same_document", "beside")]
        features = features_BNF[0][:, at].round(2).tolist()
        return {BOOK[row].id: tuple(known) for row, known in zip(pool, features, strict=True)}

    plain = {"rest": (0.0, 0.0), "heart_chunk_2": (0.0, 0.0)}
    assert found(0, "lung_chunk_1") == found(9) == plain
    assert list(found(1, "lung_chunk_1")) == [*plain, "lung_chunk_2"], "what follows before what precedes"
    one_apart, two_apart = (1.0, 1.0), (1.0, 0.5)
    nearby = {"lung_chunk_2": one_apart, "lung_chunk_0": one_apart, "lung_chunk_3": two_apart}
    assert found(3, "lung_chunk_1") == plain | nearby
    both = found(3, "lung_chunk_0", "lung_chunk_1")
    assert both == plain | {"lung_chunk_2": one_apart, "lung_chunk_3": two_apart}, "of two picks, the nearer counts"
    assert list(gathered(links(neighbours=9), search("film"), "bath")) == ["bath"], "no documents, no neighbours"


def test_what_a_pick_leads_to_and_shares_with_a_candidate(links: Any) -> None:
    """The film lacks director and born of the query; Ada Brown, Carl Dean and The Old Mill are its names."""
    known = gathered(links(followed=9), search("film"), "bath", "rest")
    assert known["ada"]["followed"] == known["ada"]["followed_rank"] == 1.0 > known["carl"]["followed"] > 0
    assert known["carl"]["followed_rank"] == 0.5 and known["bath"]["followed"] == 0.0
    assert known["ada"]["title_in_pick"] == 1.0 and known["bath"]["title_in_pick"] == 0.0
    assert known["ada"]["pick_names_in"] == 1.0 and known["rest"]["pick_names_in"] == 0.0
    assert gathered(links(), search("ada"), "film")["film"]["pick_title_in"] == 1.0
    assert gathered(links(), search(), "film")["film"]["pick_title_in"] == 0.0, "nothing is picked"


def test_what_is_known_of_a_named_and_of_a_linked_passage(links: Any) -> None:
    player = links(words=2, titled=10, linked=10)
    begun = gathered(player, search(), "bath", "film")
    assert begun["film"]["titled"] == begun["film"]["titled_first"] == 1.0
    assert begun["film"]["title_words"] == 1.0 and begun["film"]["nearest"] == 0.5 and begun["film"]["words"] == 1.0
    assert begun["film"]["words_rank"] == 1.0 and begun["rest"]["words_rank"] == 0.5 > begun["bath"]["words_rank"]
    assert 0.0 < begun["rest"]["words"] < 1.0 and begun["rest"]["titled"] == 0.0 and begun["rest"]["nearest"] == 0.0
    later = gathered(player, search("film"), "bath")
    ada, carl = later["ada"], later["carl"]
    assert ada["linked"] == carl["linked"] == 1.0 and later["bath"]["linked"] == later["rest"]["linked"] == 0.0
    assert ada["sentence"] == ada["window"] == 0.25 > carl["sentence"], "of director, old, mill and born: directed"
    assert ada["led_to"] == 1.0 and ada["query_new"] == 0.25 and ada["names_pick"] == 0.0


def test_given_passages_alone_and_comparisons(links: Any) -> None:
    player = links(words=2, titled=10, linked=10, naming=10, followed=10)
    given = gathered(player, search("film"), "ada", "rest", corpus=False)
    assert list(given) == ["ada", "rest"] and given["ada"]["linked"] == 1.0 and given["rest"]["words"] == 0.0
    asked = search(query="Who is older, Ada Brown or Carl Dean?")
    assert gathered(player, asked)["ada"]["titled_compares"] == 1.0


def test_searches_are_laid_side_by_side(links: Any) -> None:
    rows = [np.array([ROW["bath"]]), np.array([ROW["bath"], ROW["carl"], ROW["ada"]])]
    pools, features_BNF = links().gather([search(), search("film")], rows, search=True)
    assert [len(pool) for pool in pools] == [1, 3] and features_BNF.shape[:2] == (2, 3)
    assert not features_BNF[0, 1:].any() and features_BNF[1, 2].any()
