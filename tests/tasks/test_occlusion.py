"""The trained model with a part of its state hidden."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from stages import SMOKE

from harr.io.files import read_json
from harr.params import Params
from harr.types import Passage, Question, Retrieval, Search
from tasks.occlusion import play_occluded


class Reads:
    """A retriever that needs one part of a search, and finds the gold passage by it."""

    def __init__(self, part: str) -> None:
        self.part = part

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        gold, other = Passage("gold", "Ada Brown was born in Bath.", "Ada Brown"), Passage("other", "No.", "No")
        return [Retrieval((gold if getattr(search, self.part) else other,)) for search in searches]


@pytest.fixture
def reading(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make all arms read a part of the state and nothing else."""

    def read(part: str) -> None:
        @contextmanager
        def players(*values: Any, **named: Any) -> Any:
            yield lambda arm, folder: Reads(part)

        monkeypatch.setattr("harr.builders.setup.open_players", players)

    return read


def test_each_part_costs_what_the_model_read_of_it(reading: Callable[[str], None]) -> None:
    reading("query")
    evaluate = {"arms": ["frozen", "full"], "seeds": 2, "occlusion": True, "resamples": 50}
    params = Params.model_validate(SMOKE | {"evaluate": evaluate})
    asked = [Question(f"q{n}", "Where was Ada Brown born?", ("Bath",), ("gold",)) for n in range(4)]
    whole = [[{"id": question.id, "recall": 1.0, "answer_f1": 0.75} for question in asked]] * 2
    logged: dict[str, float] = {}
    play_occluded.fn(params, asked, {"full": whole}, lambda step, values: logged.update(values), model=None)
    figures = read_json(Path("metrics/occlusion.json"))
    assert list(figures) == ["question", "history", "query"]
    recall = {part: (metrics["recall"]["mean"], metrics["recall"]["cost"]) for part, metrics in figures.items()}
    assert recall == {"question": (1.0, 0.0), "history": (1.0, 0.0), "query": (0.0, 1.0)}
    assert set(figures["query"]["recall"]) == {"mean", "low", "high", "n", "seeds", "cost", "cost_low", "cost_high"}
    assert logged["full_without_query.recall"] == 0.0


def test_of_a_state_with_a_thought_that_is_hidden_too(reading: Callable[[str], None]) -> None:
    """Of searches that the scripted agent of search_r1 thinks before."""
    reading("thought")
    changes = {
        "pipeline": {"name": "search_r1"},
        "retriever": SMOKE["retriever"] | {"state": "thought"},
        "evaluate": {"arms": ["thought", "full"], "seeds": 1, "occlusion": True, "resamples": 50},
    }
    asked = [Question("q", "Where was Ada Brown born?", ("Bath",), ("gold",))]
    whole = [[{"id": "q", "recall": 1.0}]]
    play_occluded.fn(Params.model_validate(SMOKE | changes), asked, {"full": whole}, lambda *_: None, model=None)
    costs = {part: metrics["recall"]["cost"] for part, metrics in read_json(Path("metrics/occlusion.json")).items()}
    assert costs == {"question": 0.0, "thought": 1.0, "query": 0.0}
