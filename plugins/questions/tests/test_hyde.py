"""HyDE: what is searched for in a query's place."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from harr_questions import hyde
from harr_questions.hyde import Hyde

from harr.errors import ParamsError
from harr.types import Generate, Question, Retrieval, Search

WRITER = {"kind": "local", "model": "m"}


class Writer:
    """A language model that thinks, then writes the question's first word; ``asked`` are the prompts so far."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        self.asked += [request.messages[-1]["content"] for request in requests]
        return [f"<think>hm</think>\n{request.messages[-1]['content'].split()[1]} is\nhere." for request in requests]


def test_the_query_is_searched_for_with_a_passage_that_would_answer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, searched = Writer(), list[Search]()

    def retrieve(searches: Sequence[Search]) -> list[Retrieval]:
        searched.extend(searches)
        return [Retrieval(()) for _ in searches]

    inputs: Any = SimpleNamespace(settings={"writer": WRITER}, base=SimpleNamespace(retrieve=retrieve))
    monkeypatch.setattr(hyde, "build_reader", lambda section, seed, places, name: writer)
    question = Question("q", "Where was Ada born?")
    searches = [Search(question, text, k=k) for text, k in (("Ada?", 1), ("Bath?", 2), ("Ada?", 3))]
    assert len(Hyde(inputs).retrieve(searches)) == 3
    assert [search.query for search in searched] == ["Ada? Ada? is here.", "Bath? Bath? is here.", "Ada? Ada? is here."]
    assert [search.k for search in searched] == [1, 2, 3] and {search.question for search in searched} == {question}
    assert writer.asked == ["Question: Ada?\nPassage:", "Question: Bath?\nPassage:"], "equal queries are asked once"


def test_settings_that_are_none_of_it_are_refused() -> None:
    inputs: Any = SimpleNamespace(settings={"writer": WRITER, "count": 3}, base=None)
    with pytest.raises(ParamsError, match="settings of Hyde: unknown parameter count"):
        Hyde(inputs)
