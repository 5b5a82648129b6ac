"""docs/usage_language_model.md: its code runs on a model of single letters and does what the page says."""

import re
from pathlib import Path
from typing import Any

import pytest
from letters import save_letters

from harr.rag.pipelines.r_search import r_search
from harr.types import Passage, Question, Retrieval

PAGE = Path(__file__).parents[1] / "docs/usage_language_model.md"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names defined by the page's code, run in a folder with models/language_model."""
    folder = tmp_path_factory.mktemp("usage")
    save_letters(folder / "models/language_model", spread=0.5, room=4096, printable=True)
    first, second = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec((first + second).replace('"models/language_model"', repr(str(folder / "models/language_model"))), names)
    return names


def replies(page: dict[str, Any], monkeypatch: pytest.MonkeyPatch, said: list[str]) -> list[str]:
    """Let the page's model say these; return the list of what it will have read."""
    read, answers = list[str](), iter(said)

    def write(text: str, *stops: str) -> str:
        read.append(text)
        return next(answers)

    monkeypatch.setitem(page, "write", write)
    return read


def test_it_stops_at_the_word_and_not_at_one_that_it_was_shown(page: dict[str, Any]) -> None:
    """Bug 1 of the published code: a stop string in the prompt ended every completion after one token."""
    free = page["write"]("abc", "</search>")
    assert len(free) > 3
    stop = free[2]
    assert page["write"]("abc", stop) == free[: free.index(stop) + 1]
    assert len(page["write"]("</search> is the word", "</search>")) > 3


def test_a_search_is_answered_and_the_answer_returned(page: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    said = ["I look it up. <search> founder of Acme </search>", "She is known. <answer> Ashford </answer>"]
    read = replies(page, monkeypatch, said)
    assert page["answer"]("Where was the founder of Acme born?") == "Ashford"
    shown = "Doc 1(Title: Ada Brown) Ada Brown founded Acme. She was born in Ashford."
    assert read[1].endswith(f"</search>\n\n<information>{shown}</information>\n\n")


GRAPH = (
    "<think> two </think><search>\nNodes:\nB: birthplace of $A (General)\nA: founder of Acme (News)\nEdges:\nA -> B\n"
)


def test_a_graph_is_searched_in_order_and_shown_as_in_training(
    page: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = {"founder of Acme": "Ada Brown founded Acme.", "birthplace of Ada Brown": "She was born in Ashford."}
    game = r_search(Question("q", "Where was the founder of Acme born?"), tools=["General", "News"], template="bare")
    opening = next(game).prompt  # type: ignore[union-attr]

    def send(text: str) -> Any:
        searches: Any = game.send(text)
        return game.send([Retrieval((Passage("p", shelf[one.query], "Acme"),)) for one in searches])

    said = "<think> so </think><found> A is Ada Brown "
    reading, answering = send(GRAPH), send(said)
    last = "<think> She is known. </think><answer> Ashford </answer>"
    read = replies(page, monkeypatch, [f"{GRAPH}</search>", f"{said}</found>", last])
    monkeypatch.setitem(page, "search", lambda query: f"Doc 1(Title: Acme) {shelf[query]}")
    assert page["answer_by_graph"]("Where was the founder of Acme born?") == "Ashford"
    assert read == [opening, reading.prompt, answering.prompt]
