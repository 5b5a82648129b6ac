"""Queries written by a rule."""

from dataclasses import replace

import pytest
from by_hand import Fixed

from harr.rag.retrieval.rewritten import RULES, Rewritten, rewrite_query
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
