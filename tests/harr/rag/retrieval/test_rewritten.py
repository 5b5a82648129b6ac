"""Queries that a rule writes."""

from dataclasses import replace

import pytest
from by_hand import Fixed

from harr.rag.policies.state import state_text
from harr.rag.retrieval.rewritten import RULES, Rewritten, hidden_parts, rewrite_query
from harr.types import Hop, Question, Search

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
    shelf, search = Fixed(), replace(SEARCH, hops=hops)
    assert len(Rewritten(shelf, rewrite_query(RULES[rule])).retrieve([search, search])) == 2
    assert shelf.batches == [[replace(search, query=written, hops=())] * 2]
    assert RULES["oracle_query"](Search(QUESTION, "Who founded Acme?")) == "Who founded Acme?", "it knows no better"


def hidden(style: str, search: Search, *, writes_queries: bool = True) -> dict[str, list[str]]:
    """The lines of the state without each of its parts."""
    parts = hidden_parts(style, writes_queries=writes_queries)
    assert all(hide(search).exclude_ids == search.exclude_ids for hide in parts.values())
    return {part: state_text(hide(search), style=style, history=True).splitlines() for part, hide in parts.items()}


def test_a_hidden_part_is_empty_in_the_state_and_the_others_stay() -> None:
    question, history, query = state_text(SEARCH, style="json", history=True).splitlines()
    assert hidden("json", SEARCH) == {
        "question": ["Original Question: ", history, query],
        "history": [question, "History: []", query],
        "query": [question, history, "Query: "],
    }
    thought = replace(SEARCH, thought="Bea Cole taught her.")
    question, reasoning, query = state_text(thought, style="thought", history=True).splitlines()
    assert hidden("thought", thought) == {
        "question": ["Original Question: ", reasoning, query],
        "thought": [question, query],
        "query": [question, reasoning, "Query: "],
    }
    query, question, hop = state_text(SEARCH, style="sep", history=True).split(" [SEP] ", 2)
    assert hidden("sep", SEARCH) == {
        "question": [f"{query} [SEP] {hop}"],
        "history": [f"{query} [SEP] {question}"],
        "query": [f" [SEP] {question} [SEP] {hop}"],
    }
    picking = Search(QUESTION, QUESTION.text, (Hop("", "Acme: a firm."),))
    found = hidden("sep", picking, writes_queries=False)
    assert found == {"question": [" [SEP] Acme: a firm."], "history": [QUESTION.text]}, "the query is the question"
