"""Needles: the values asked for are the values of the gold facts, and of no other."""

import re

import pytest

from harr.datasets.needles import distractors, make_needles
from harr.errors import CorpusError

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
KEY = {"words": r"[a-z]+-[a-z]+", "uuids": UUID}
VALUE = {"numbers": r"\d{7}", "uuids": UUID}


def told(fact: str, keys: str, values: str) -> tuple[str, str]:
    """The key and the value of a needle, which must have RULER's form."""
    found = re.fullmatch(f"One of the special magic {values} for ({KEY[keys]}) is: ({VALUE[values]})\\.", fact)
    assert found, fact
    return found[1], found[2]


@pytest.mark.parametrize(("keys", "values"), [("words", "numbers"), ("uuids", "uuids")])
@pytest.mark.parametrize(
    ("kind", "facts", "gold"), [("single", 1, 1), ("multi_key", 4, 1), ("multi_value", 4, 4), ("multi_query", 4, 4)]
)
def test_gold_facts_are_those_of_the_names_in_the_question(
    kind: str, facts: int, gold: int, keys: str, values: str
) -> None:
    for story in make_needles(kind, 50, 0, keys, values):
        assert (len(story.facts), len(story.gold)) == (facts, gold)
        pairs = [told(fact, keys, values) for fact in story.facts]
        asked = {place for place, (key, _) in enumerate(pairs) if key in story.question}
        assert set(story.gold) == asked
        assert story.answers == (", ".join(pairs[place][1] for place in story.gold),)
        assert len({value for _, value in pairs}) == facts
        assert story.question.startswith("What are all the special" if gold > 1 else "What is the special")


def test_an_unknown_kind_and_too_many_names_are_one_line() -> None:
    with pytest.raises(CorpusError, match="needle kind 'few' is unknown; expected one of single, multi_key"):
        list(make_needles("few", 1, 0))
    with pytest.raises(CorpusError, match=r"5,000 needles needs as many names, found 4,949; set download\.keys to"):
        distractors(5000, 0)
