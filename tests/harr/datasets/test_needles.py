"""Needles: the numbers asked for are the numbers of the gold facts, and of no other."""

import re

import pytest

from harr.datasets.needles import ADJECTIVES, KINDS, NOUNS, make_needles
from harr.errors import CorpusError


@pytest.mark.parametrize(
    ("kind", "facts", "gold"), [("single", 1, 1), ("multi_key", 4, 1), ("multi_value", 4, 4), ("multi_query", 4, 4)]
)
def test_gold_facts_are_those_of_the_names_in_the_question(kind: str, facts: int, gold: int) -> None:
    for story in make_needles(kind, 100, seed=0):
        assert (len(story.facts), len(story.gold)) == (facts, gold)
        told = [re.fullmatch(r"A magic number of the (\w+ \w+) is (\d{7})\.", fact) for fact in story.facts]
        assert all(told)
        asked = {place for place, found in enumerate(told) if found and found[1] in story.question}
        assert set(story.gold) == asked
        assert story.answers == (", ".join(found[2] for place in story.gold if (found := told[place])),)
        assert len({found[2] for found in told if found}) == facts


def test_equal_seeds_give_equal_needles() -> None:
    for kind in KINDS:
        assert list(make_needles(kind, 5, seed=1)) == list(make_needles(kind, 9, seed=1))[:5]
        assert list(make_needles(kind, 5, seed=1)) != list(make_needles(kind, 5, seed=2))


def test_words_are_distinct() -> None:
    assert len({*ADJECTIVES, *NOUNS}) == len(ADJECTIVES) + len(NOUNS)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(CorpusError, match="needle kind 'few' is unknown; expected one of single, multi_key"):
        list(make_needles("few", 1, 0))
