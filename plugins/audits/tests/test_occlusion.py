"""The trained model with a part of its state hidden."""

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harr_audits.occlusion import hidden_parts, occlude
from stages import SMOKE

from harr.params import Params
from harr.rag.policies.state import state_text
from harr.types import Episode, Hop, Passage, Question, Retrieval, Search


class Reads:
    """A retriever that needs one part of a search, and finds the gold passage by it."""

    def __init__(self, part: str) -> None:
        self.part = part

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        gold, other = Passage("gold", "Ada Brown was born in Bath.", "Ada Brown"), Passage("other", "No.", "No")
        return [Retrieval((gold if getattr(search, self.part) else other,)) for search in searches]


def test_each_part_costs_what_the_model_read_of_it(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """States are json, or have the thought that the scripted agent of search_r1 thinks before a search."""
    asked = [Question(f"q{n}", "Where was Ada Brown born?", ("Bath",), ("gold",)) for n in range(4)]
    whole = [[{"id": question.id, "recall": 1.0} for question in asked]] * 2

    @contextmanager
    def players(*values: Any, **named: Any) -> Any:
        yield lambda arm, folder: Reads(read)

    monkeypatch.setattr("harr_audits.occlusion.open_players", players)
    thought = {"pipeline": {"name": "search_r1"}, "retriever": SMOKE["retriever"] | {"state": "thought"}}
    for read, before, parts, sections in (
        ("query", "frozen", ["question", "history", "query"], {}),
        ("thought", "thought", ["question", "thought", "query"], thought),
    ):
        evaluate = {"arms": [before, "trained"], "seeds": 2, "resamples": 50}
        params = Params.model_validate(SMOKE | sections | {"evaluate": evaluate})
        found = occlude(params, {"trained": whole}, {"trained": [Episode(question) for question in asked]})
        assert list(found.facts) == parts
        for part, metrics in found.facts.items():
            cost = float(part == read)
            assert (metrics["recall"]["mean"], metrics["recall"]["cost"]) == (1.0 - cost, cost), part
            assert found.figures[f"trained_without_{part}.recall"] == 1.0 - cost
        assert {"low", "high", "n", "seeds", "cost_low", "cost_high"} < set(found.facts["query"]["recall"])
        says = [row["so"] for row in found.table]
        assert says == ["", *(f"it {'reads' if part == read else 'hardly uses'} the {part}" for part in parts)]
    assert not occlude(params, {"frozen": whole}, {}).table


QUESTION = Question("q", "Where was the teacher of the founder of Acme born?")
HOPS = (Hop("Who founded Acme?", "Ada Brown", "FOUND"), Hop("Who taught her?", "Bea Cole", "FOUND"))
SEARCH = Search(QUESTION, "Where was she born?", HOPS, frozenset("x"), 2, "news", "Where was Bea Cole born?")


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
