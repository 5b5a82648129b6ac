"""The trained model with a part of its state hidden."""

from collections.abc import Sequence
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


def test_each_part_costs_what_the_model_read_of_it(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of json states, and of states with the thought that the scripted agent of search_r1 thinks before a search."""
    asked = [Question(f"q{n}", "Where was Ada Brown born?", ("Bath",), ("gold",)) for n in range(4)]
    whole = [[{"id": question.id, "recall": 1.0} for question in asked]] * 2
    logged: dict[str, float] = {}

    @contextmanager
    def players(*values: Any, **named: Any) -> Any:
        yield lambda arm, folder: Reads(read)

    monkeypatch.setattr("harr.builders.players.open_players", players)
    thought = {"pipeline": {"name": "search_r1"}, "retriever": SMOKE["retriever"] | {"state": "thought"}}
    for read, before, parts, sections in (
        ("query", "frozen", ["question", "history", "query"], {}),
        ("thought", "thought", ["question", "thought", "query"], thought),
    ):
        evaluate = {"arms": [before, "trained"], "seeds": 2, "occlusion": True, "resamples": 50}
        params = Params.model_validate(SMOKE | sections | {"evaluate": evaluate})
        play_occluded(params, asked, {"trained": whole}, lambda step, values: logged.update(values), model=None)
        figures = read_json(Path("metrics/occlusion.json"))
        assert list(figures) == parts
        for part, metrics in figures.items():
            cost = float(part == read)
            assert (metrics["recall"]["mean"], metrics["recall"]["cost"]) == (1.0 - cost, cost), part
            assert logged[f"trained_without_{part}.recall"] == 1.0 - cost
        assert {"low", "high", "n", "seeds", "cost_low", "cost_high"} < set(figures["query"]["recall"])
