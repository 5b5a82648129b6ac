"""Players that choose by a judge: what it sees, what it chooses, and what is paid."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harr_selectors import best_of
from harr_selectors.best_of import choose_best
from letters import OnePassage, one_answer, sampling_params

from harr.arms import player_arm
from harr.builders import generators, players
from harr.errors import ParamsError
from harr.evaluate.play import ArmRun, Game
from harr.params import Params
from harr.rag.pipelines.search_r1 import search_r1
from harr.types import Episode, Generate, Outcome, Passage, Question, Retrieval, Search, Step, Turn
from tasks.samples import choose_episodes, player_of, with_tokens

ASKED = [Question("q", "Who?", answers=("Ada",))]
SELECTOR = {"kind": "server", "server": {"urls": ["http://127.0.0.1:9/v1"]}, "model": "judge"}


def episode(answer: str, question: Question = ASKED[0], found: str = "p1") -> Episode:
    """An episode that found one passage."""
    step = Step(Search(question, "x"), Retrieval((Passage(found, "It was Ada."),)))
    return Episode(question, (step,), Outcome(answer), (Turn(Generate(prompt="Who?"), f"so {answer}"),))


def judge_that(grades: dict[str, str], seen: list[str]) -> Any:
    """A judge that grades answers by their words."""

    def complete(requests: Sequence[Generate]) -> list[str]:
        texts = [request.messages[-1]["content"] for request in requests]
        seen.extend(texts)
        return [grades[json.loads(text.rpartition("Answer: ")[2])] for text in texts]

    return SimpleNamespace(complete=complete)


@pytest.fixture
def params(workplace: Path) -> Params:
    return sampling_params()


def with_arm(params: Params, player: str) -> tuple[Params, ArmRun]:
    """The run with an arm of this package."""
    values = params.model_dump(exclude_unset=True)
    arm = {"name": "mine", "player": player, "settings": {"selector": SELECTOR}}
    found = Params.model_validate(values | {"evaluate": values["evaluate"] | {"arms": [arm, "trained"]}})
    return found, ArmRun("mine", found.evaluate.arm_table["mine"], 0, None)


def test_a_judge_chooses_by_passages_and_sees_no_gold() -> None:
    seen: list[str] = []
    group = (episode("Ben"), episode("Ada"), episode("Cy", found="p2"), episode("Ada"), episode(""))
    judge = judge_that({"Ben": '{"score": 0.5}', "Ada": '{"score": 1}', "Cy": "no idea"}, seen)
    assert choose_best([group], judge) == [group[1]]
    assert len(seen) == 3 and all("It was Ada." in text and "Reference" not in text for text in seen), "equal ones once"
    tie = judge_that(dict.fromkeys(("Ben", "Ada", "Cy"), '{"score": 0.5}'), [])
    assert choose_best([group], tie)[0].answer == "Ada", "of equals the more frequent"
    silent = (episode(""), episode(""))
    assert choose_best([silent], judge) == [silent[0]]


def test_a_beam_has_a_judge_and_pays_for_what_it_gives_up(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    searching = SimpleNamespace(
        complete=lambda asked: ["<search>x" if "<information>Doc" not in one.prompt else "<answer>Ada" for one in asked]
    )
    monkeypatch.setattr(players, "open_samplers", lambda *_: [searching, one_answer("Ben")])
    monkeypatch.setattr(generators, "language_model_facts", lambda *_: SimpleNamespace(tokens=lambda text: 1))
    judge = SimpleNamespace(complete=lambda asked: ['{"score": 1.0}' for _ in asked], usage=lambda: {"requests": 3.0})
    monkeypatch.setattr(best_of, "build_reader", lambda *_: judge)
    params, run = with_arm(params, "harr_selectors.beam:beam")
    game = Game("arm", lambda asked: search_r1(asked, max_searches=1), OnePassage(), None)
    found, paid = choose_episodes(params, run, game, ASKED, lambda step, values: None)
    assert found[0].answer == "Ben", "of equal answers the one that ended first"
    assert with_tokens(params, [{"id": "q"}], paid) == [{"id": "q", "written_tokens": 3.0}]


def test_the_best_of_the_samples_is_played_as_an_arm(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(players, "open_samplers", lambda *_: [one_answer("Ben"), one_answer("Ada"), one_answer("Cy")])
    monkeypatch.setattr(generators, "language_model_facts", lambda *_: SimpleNamespace(tokens=lambda text: 1))
    judge = judge_that(dict.fromkeys(("Ben", "Cy"), "?") | {"Ada": '{"score": 1}'}, [])
    judge.usage = lambda: {"requests": 3.0}
    monkeypatch.setattr(best_of, "build_reader", lambda *_: judge)
    params, run = with_arm(params, "harr_selectors.best_of:best_of")
    game = Game("arm", lambda asked: search_r1(asked, max_searches=1), OnePassage(), None)
    logged: dict[str, float] = {}
    found, paid = choose_episodes(params, run, game, ASKED, lambda step, values: logged.update(values))
    assert found[0].answer == "Ada" and logged and "mine" in str(run)
    assert with_tokens(params, [{"id": "q"}], paid) == [{"id": "q", "written_tokens": 3.0}]


def test_a_majority_of_samples_answers_and_pays_for_all(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(players, "open_samplers", lambda *_: [one_answer("Ben"), one_answer("Ada"), one_answer("Ada")])
    facts = SimpleNamespace(tokens=lambda text: len(text.split(">")[-1]))
    monkeypatch.setattr(generators, "language_model_facts", lambda *_: facts)
    values = params.model_dump(exclude_unset=True)
    arm = {"name": "majority", "player": "harr_selectors.samples:by_majority"}
    params = Params.model_validate(values | {"evaluate": values["evaluate"] | {"arms": [arm, "trained"]}})
    game = Game("arm", lambda asked: search_r1(asked, max_searches=1), OnePassage(), one_answer("Cy"))
    rows: dict[str, dict[str, Any]] = {}
    for name, record in params.evaluate.arm_table.items():
        found, paid = choose_episodes(params, ArmRun(name, record, 0, None), game, ASKED, lambda step, values: None)
        rows[name] = with_tokens(params, [{"id": "q", "answer": found[0].answer}], paid)[0]
    assert rows["majority"] == {"id": "q", "answer": "Ada", "written_tokens": 9.0}
    assert rows["trained"] == {"id": "q", "answer": "Cy", "written_tokens": 2.0}


@pytest.mark.parametrize(
    ("player", "settings", "line"),
    [
        ("harr_selectors.best_of:best_of", {"judge": {}}, "harr_selectors.best_of:best_of cannot be called so"),
        (
            "harr_selectors.beam:beam",
            {"selector": {"kind": "server"}},
            "settings of harr_selectors: selector.server is",
        ),
        ("builtins:list", {}, "builtins:list returned list; give a function that takes the settings"),
    ],
)
def test_settings_that_do_not_fit_are_refused_first(player: str, settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ParamsError, match=line):
        player_of(player_arm(player, settings))
