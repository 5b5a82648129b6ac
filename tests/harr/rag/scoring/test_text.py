"""Vectors worked by hand from the official SQuAD scripts' rules."""

import pytest

from harr.characters import normalise
from harr.rag.scoring.text import exact_match, token_f1

NORMALISED = [
    ("The Cat", "cat"),
    ("  a\tb \n c ", "b c"),  # a is an article
    ("An apple, a day", "apple day"),
    ("theatre another", "theatre another"),  # articles only as whole words
    ("U.S.A.", "usa"),
    ("well-known", "wellknown"),  # punctuation goes without leaving a space
    ("a-b", "ab"),  # punctuation goes first, so this a is no article
    ("O'Neill's", "oneills"),
    ("“Curly” \u2013 dash", "“curly” \u2013 dash"),  # only ASCII punctuation is removed
    ("Ünïcode ÉTÉ", "ünïcode été"),
    ("The", ""),
    ("$1,000.50", "100050"),
]

SCORES = [  # answer, golds, exact match, F1
    ("Paris", ["Paris"], 1.0, 1.0),
    ("the city of Paris", ["Paris"], 0.0, 2 * (1 / 3) / (1 / 3 + 1)),
    ("Paris France", ["Paris, Texas", "France"], 0.0, 2 / 3),  # best of 1/2 and 2/3
    ("yes", ["yes"], 1.0, 1.0),
    ("Yes, it is", ["yes"], 0.0, 0.5),  # SQuAD has no special case for yes and no
    ("no", ["yes"], 0.0, 0.0),
    ("new new york", ["new york york"], 0.0, 2 / 3),  # words count as often as both sides have them
    ("“Emma”", ["Emma"], 0.0, 0.0),  # curly quotes stay part of the word
    ('"Emma"', ["Emma"], 1.0, 1.0),
    ("", ["Emma"], 0.0, 0.0),
    ("the", ["A"], 1.0, 1.0),  # nothing left on either side: equal, as in SQuAD 2.0
    ("", ["x", "The"], 1.0, 1.0),
    ("anything", [], 0.0, 0.0),
]


@pytest.mark.fault(13)
def test_normalise() -> None:
    assert [(text, normalise(text)) for text, _ in NORMALISED] == NORMALISED


@pytest.mark.fault(13)
def test_scores() -> None:
    for answer, golds, match, f1 in SCORES:
        assert exact_match(answer, golds) == match, answer
        assert token_f1(answer, golds) == pytest.approx(f1, abs=1e-12), answer
