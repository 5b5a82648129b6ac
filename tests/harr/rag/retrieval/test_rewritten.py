"""Queries that a rule writes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harr.rag.policies.state import state_text
from harr.rag.retrieval.rewritten import RULES, Rewritten, hidden_parts, searching_for
from harr.types import Hop, Question, Retrieval, Search

QUESTION = Question("q", "Where was the teacher of the founder of Acme born?")
HOPS = (Hop("Who founded Acme?", "Ada Brown", "FOUND"), Hop("Who taught her?", "Bea Cole", "FOUND"))
SEARCH = Search(QUESTION, "Where was she born?", HOPS, frozenset("x"), 2, "news", "Where was Bea Cole born?")


@pytest.mark.parametrize(
    ("rule", "hops", "written"),
    [
        ("last_answer", HOPS, "Bea Cole Where was she born?"),
        ("first_answer", HOPS, "Ada Brown Where was she born?"),
        ("all_answers", HOPS, "Ada Brown Bea Cole Where was she born?"),
        ("question_query", HOPS, f"{QUESTION.text} Where was she born?"),
        ("oracle_query", HOPS, "Where was Bea Cole born?"),
        ("last_answer", (*HOPS, Hop("Where?", "", "NOT_FOUND")), "Bea Cole Where was she born?"),
        ("last_answer", (), "Where was she born?"),
        ("all_answers", (), "Where was she born?"),
    ],
)
def test_a_rule_writes_what_is_searched_for(rule: str, hops: tuple[Hop, ...], written: str) -> None:
    asked: list[Search] = []

    class Shelf:
        def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
            asked.extend(searches)
            return [Retrieval(())] * len(searches)

    search = Search(QUESTION, SEARCH.query, hops, SEARCH.exclude_ids, SEARCH.k, SEARCH.tool, SEARCH.resolved)
    assert len(Rewritten(Shelf(), searching_for(RULES[rule])).retrieve([search, search])) == 2
    assert [one.query for one in asked] == [written] * 2
    assert {(one.hops, one.exclude_ids, one.k, one.tool) for one in asked} == {((), frozenset("x"), 2, "news")}


def test_an_oracle_falls_back_on_the_query() -> None:
    assert RULES["oracle_query"](Search(QUESTION, "Who founded Acme?")) == "Who founded Acme?"


def test_a_hidden_part_is_empty_in_the_state_and_the_others_stay() -> None:
    hidden = hidden_parts("json", writes_queries=True)
    states = {part: state_text(hide(SEARCH), style="json", history=True) for part, hide in hidden.items()}
    whole = state_text(SEARCH, style="json", history=True).splitlines()
    assert {part: text.splitlines() for part, text in states.items()} == {
        "question": ["Original Question: ", *whole[1:]],
        "history": [whole[0], "History: []", whole[2]],
        "query": [*whole[:2], "Query: "],
    }
    assert all(hide(SEARCH).exclude_ids == SEARCH.exclude_ids for hide in hidden.values())


def test_a_state_of_a_thought_has_that_to_hide_and_no_history() -> None:
    search = replace(SEARCH, thought="Bea Cole taught her.")
    hidden = hidden_parts("thought", writes_queries=True)
    states = {part: state_text(hide(search), style="thought", history=True) for part, hide in hidden.items()}
    question, reasoning, query = state_text(search, style="thought", history=True).splitlines()
    assert {part: text.splitlines() for part, text in states.items()} == {
        "question": ["Original Question: ", reasoning, query],
        "thought": [question, query],
        "query": [question, reasoning, "Query: "],
    }


def test_where_the_query_is_the_question_both_are_hidden() -> None:
    hidden = hidden_parts("sep", writes_queries=False)
    picking = Search(QUESTION, QUESTION.text, (Hop("", "Acme: a firm."),))
    texts = {part: state_text(hide(picking), style="sep", history=True) for part, hide in hidden.items()}
    assert texts == {"question": " [SEP] Acme: a firm.", "history": QUESTION.text}
