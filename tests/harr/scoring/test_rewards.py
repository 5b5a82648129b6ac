"""Reward terms, their per-step gains and their weighted sum."""

import pytest

from harr.errors import CorpusError, ParamsError
from harr.scoring.mix import Reward
from harr.scoring.rewards import TERMS, prefix_gains
from harr.types import Episode, Outcome, Passage, Question, Retrieval, Search, Step


def episode(answer: str | None, *steps: str, answers: tuple[str, ...] = ("Ada Brown",), gold: str = "ab") -> Episode:
    question = Question("q7", "Who?", answers=answers, gold_ids=tuple(gold))
    played = tuple(Step(Search(question, "Who?"), Retrieval(tuple(map(_passage, step)))) for step in steps)
    return Episode(question, played, Outcome(answer))


def _passage(name: str) -> Passage:
    return Passage(name, "")


FULL = episode("Ada", "ax", "by")  # F1 2/3: precision 1, recall 1/2
UNANSWERED = episode(None, "ax")
NO_ANSWERS = episode("Ada", "ax", answers=())
NO_GOLD = episode("ada brown", "ax", gold="")


@pytest.mark.parametrize(
    ("played", "expected"),
    [
        (FULL, {"answer_f1": 2 / 3, "answer_em": 0.0, "recall": 1.0, "all_gold": 1.0}),
        (UNANSWERED, {"answer_f1": 0.0, "answer_em": 0.0, "recall": 0.5, "all_gold": 0.0}),
        (NO_ANSWERS, {"answer_f1": None, "answer_em": None, "recall": 0.5, "all_gold": 0.0}),
        (NO_GOLD, {"answer_f1": 1.0, "answer_em": 1.0, "recall": None, "all_gold": None}),
    ],
)
def test_terms(played: Episode, expected: dict[str, float | None]) -> None:
    assert {name: TERMS[name](played) for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("answer_f1", [0.0, 0.0, 2 / 3]),  # the answer is there only at the end
        ("recall", [0.5, 0.0, 0.5]),
        ("all_gold", [0.0, 0.0, 1.0]),
    ],
)
def test_prefix_gains_of_each_step(name: str, expected: list[float]) -> None:
    played = episode("Ada", "ax", "xx", "yb")
    gains = prefix_gains(TERMS[name], played)
    assert gains == pytest.approx(expected)
    assert sum(gains) == pytest.approx(TERMS[name](played))


def test_prefix_gains_of_a_weighted_reward_and_of_no_steps() -> None:
    reward = Reward({"answer_f1": 1.0, "recall": 0.5})
    assert prefix_gains(reward, FULL) == pytest.approx([0.25, 0.25 + 2 / 3])
    assert prefix_gains(reward, episode("Ada")) == []
    assert prefix_gains(TERMS["answer_f1"], NO_ANSWERS) == [0.0]


def test_weighted_sum() -> None:
    assert Reward({"answer_f1": 1.0, "recall": 0.5})(FULL) == pytest.approx(2 / 3 + 0.5)
    assert Reward({"recall": 1.0, "answer_em": 0.0})(UNANSWERED) == 0.5
    assert Reward({"recall": 1.0, "all_gold": -0.5})(FULL) == 0.5


def test_weights_of_terms_that_do_not_apply_go_to_the_others() -> None:
    reward = Reward({"answer_f1": 1.0, "recall": 0.5})
    assert reward(NO_ANSWERS) == pytest.approx(1.5 * 0.5)
    assert reward(NO_GOLD) == pytest.approx(1.5 * 1.0)


def test_a_question_without_any_applying_term_is_named() -> None:
    with pytest.raises(CorpusError, match=r"no reward term applies to a question \(answer_f1\)"):
        Reward({"answer_f1": 1.0})(NO_ANSWERS)


def test_wrong_terms() -> None:
    with pytest.raises(ParamsError, match=r"unknown term answer_f2; known: answer_f1, answer_em, substring_em"):
        Reward({"answer_f2": 1.0})
    with pytest.raises(ParamsError, match="not all 0"):
        Reward({"recall": 0.0})
    with pytest.raises(ParamsError, match="must be finite"):
        Reward({"recall": float("nan")})
