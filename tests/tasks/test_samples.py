"""Arms that sample: who plays, what is chosen, and what a row says of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from letters import OnePassage, one_answer, sampling_params, save_letters

from harr.arms import ARMS
from harr.builders import generators, players
from harr.evaluate.play import ArmRun, Game
from harr.params import Params
from harr.rag.pipelines.search_r1 import search_r1
from harr.types import Generate, Question
from tasks.paths import PLACES
from tasks.samples import choose_episodes, play_samples_of, with_samples

ASKED = [Question("q", "Who?", answers=("Ada",))]


@pytest.fixture
def params(workplace: Path) -> Params:
    return sampling_params()


def test_a_majority_of_samples_answers_and_pays_for_all(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(players, "open_samplers", lambda *_: [one_answer("Ben"), one_answer("Ada"), one_answer("Ada")])
    facts = SimpleNamespace(tokens=lambda text: len(text.split(">")[-1]))
    monkeypatch.setattr(generators, "language_model_facts", lambda *_: facts)
    section = params.evaluate.model_copy(update={"arms": ("base", "majority", "trained")})
    params = params.model_copy(update={"evaluate": section})
    game = Game("arm", lambda asked: search_r1(asked, max_searches=1), OnePassage(), one_answer("Cy"))
    rows: dict[str, dict[str, Any]] = {}
    for name in ("majority", "trained"):
        run = ArmRun(name, ARMS[name], 0, None)
        groups = play_samples_of(params, run, game, ASKED)
        found, paid = choose_episodes(params, run, game, ASKED, groups, lambda step, values: None)
        rows[name] = with_samples(params, [{"id": "q", "answer": found[0].answer}], groups, paid)[0]
    rates = {"pass_at_1": pytest.approx(2 / 3), "pass_at_3": 1.0}
    assert rows["majority"] == {"id": "q", "answer": "Ada", "written_tokens": 9.0, **rates}
    assert rows["trained"] == {"id": "q", "answer": "Cy", "written_tokens": 2.0, **rates}


def test_samples_of_a_model_differ_and_are_remembered(params: Params, tmp_path: Path) -> None:
    folder = save_letters(tmp_path / "letters", spread=0.5)
    first, second = players.open_samplers(params, PLACES, folder, 2)
    said = [player.complete([Generate(prompt="abc")]) for player in (first, second)]
    assert said[0] != said[1]
    again = players.open_samplers(params, PLACES, folder, 2)[0]
    assert again.complete([Generate(prompt="abc")]) == said[0] and again.usage()["cached"] == 1.0
