"""Metrics of queries, worked by hand: repeated queries, and answers known beforehand."""

import pytest

from harr.evaluate.queries import answer_in_query, repeated_queries, writes_queries
from harr.types import Episode, Passage, Question, Retrieval, Search, Step

ASKED = "Where was the maker of Acme born?"


def episode(*steps: tuple[str, str], answers: tuple[str, ...] = ("East Ham",), text: str = ASKED) -> Episode:
    """Make an episode of steps: a query and its passage's text; "tool: query" asks another source."""
    question, played = Question("q", text, answers), []
    for number, (query, passage) in enumerate(steps):
        tool, _, words = query.rpartition(": ")
        played.append(Step(Search(question, words, tool=tool), Retrieval((Passage(f"p{number}", passage, "Acme"),))))
    return Episode(question, tuple(played))


@pytest.mark.fault(15)
def test_a_query_asked_again_is_counted_by_its_words_and_source() -> None:
    for queries, share in (
        (("Who made Acme?", "Where was Ada born?"), 0.0),
        (("Who made Acme?", "who made the Acme", "Where was Ada born?", "Who made Acme?"), 0.5),
        (("Who made Acme?", "web: Who made Acme?", "web: who made acme"), 1 / 3),
    ):
        assert repeated_queries(episode(*((query, "") for query in queries))) == pytest.approx(share)


@pytest.mark.fault(15)
def test_an_answer_in_a_query_counts_where_nothing_had_shown_it() -> None:
    found, unfound = ("Who made Acme?", "Ada, born in East Ham."), ("Who made Acme?", "Ada Brown.")
    guess = ("Was Ada born in the East Ham?", "East Ham is a town.")
    assert answer_in_query(episode(unfound, guess)) == 1.0
    assert answer_in_query(episode(guess)) == 1.0, "what a query finds comes after it"
    assert answer_in_query(episode(found, guess)) == 0.0
    assert answer_in_query(episode(guess, text="Was Ada born in East Ham or Bath?")) == 0.0
    assert answer_in_query(episode(unfound, ("Was Ada born in East Hampton?", ""))) == 0.0, "whole words only"
    titled = episode(unfound, ("acme", ""), ("Is it Acme", ""), answers=("Acme",), text="Which firm?")
    assert answer_in_query(titled) == 1.0, "the first query holds it"
    assert answer_in_query(episode(("Which firm", "x"), ("Is it Acme", ""), answers=("Acme",), text="Which?")) == 0.0


def test_short_answers_say_nothing() -> None:
    shares = {("yes",): None, ("No.",): None, ("the Ada",): None, (): None, ("Ada", "1901"): 1.0, ("X Y",): 0.0}
    for answers, share in shares.items():
        assert answer_in_query(episode(("Is it yes, no, Ada or 1901?", ""), answers=answers)) == share


def test_without_searches_or_written_queries_there_is_nothing_to_audit() -> None:
    assert repeated_queries(episode()) is None and answer_in_query(episode()) is None
    assert not writes_queries([episode(), episode((ASKED, "x"))])
    assert writes_queries([episode((ASKED, "x")), episode((ASKED, "x"), ("Who made Acme?", "x"))])
