"""Reward terms, their gains per step and their weighted sum."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from episodes import played

from harr.rag.scoring.reward import Reward
from harr.rag.scoring.similarity import answer_similarities
from harr.rag.scoring.terms import TERMS, prefix_gains
from harr.types import Episode, Outcome, Passage, Question, Retrieval, Search, Step


def episode(answer: str | None, *steps: str, answers: tuple[str, ...] = ("Ada Brown",), gold: str = "ab") -> Episode:
    return played("q", answer, *steps, answers=answers, gold=gold)


def passages(names: Sequence[str]) -> Retrieval:
    return Retrieval(tuple(Passage(name, "") for name in names))


FULL = episode("Ada", "ax", "by")  # F1 2/3: precision 1, recall 1/2
UNANSWERED = episode(None, "ax")
NO_ANSWERS = episode("Ada", "ax", answers=())
NO_GOLD = episode("ada brown", "ax", gold="")


def test_terms() -> None:
    answered = ("answer_f1", "answer_em", "recall", "all_gold")
    for one, expected in (
        (FULL, [2 / 3, 0.0, 1.0, 1.0]),
        (UNANSWERED, [0.0, 0.0, 0.5, 0.0]),
        (NO_ANSWERS, [None, None, 0.5, 0.0]),
        (NO_GOLD, [1.0, 1.0, None, None]),
    ):
        assert [TERMS[name](one) for name in answered] == pytest.approx(expected), one


def test_prefix_gains_of_each_step() -> None:
    played = episode("Ada", "ax", "xx", "yb")
    for name, expected in (
        ("answer_f1", [0.0, 0.0, 2 / 3]),  # the answer comes only at the end
        ("recall", [0.5, 0.0, 0.5]),
        ("all_gold", [0.0, 0.0, 1.0]),
    ):
        gains = prefix_gains(TERMS[name], played)
        assert gains == pytest.approx(expected), name
        assert sum(gains) == pytest.approx(TERMS[name](played))
    assert prefix_gains(Reward({"answer_f1": 1.0, "recall": 0.5}), FULL) == pytest.approx([0.25, 0.25 + 2 / 3])
    assert prefix_gains(TERMS["recall"], episode("Ada")) == []
    assert prefix_gains(TERMS["answer_f1"], NO_ANSWERS) == [0.0]


def found(*searches: str, gold: str = "d", answer: str | None = None, **outcome: object) -> Episode:
    """Make an episode: every search is a line of chunk ids ``<document><number>``."""
    gold_ids = tuple(f"{gold}_chunk_{number}" for number in range(9))
    question = Question("q", "Who?", answers=("Ada Brown",), gold_ids=gold_ids)
    ids = [[f"{name[0]}_chunk_{name[1]}" for name in search.split()] for search in searches]
    steps = tuple(Step(Search(question, "Who?"), passages(names)) for names in ids)
    return Episode(question, steps, Outcome(answer, **outcome))  # type: ignore[arg-type]


def test_mrr_counts_documents_and_takes_the_best_search() -> None:
    mrr = TERMS["mrr"]
    assert mrr(found("a0 a1 a2 d3")) == 1 / 2  # the fourth chunk, the second document
    assert mrr(found("a0 b0 c0 d0", "a1 d7 d8", "a2")) == 1 / 2
    assert mrr(found()) == 0.0 and mrr(found("a0 b0")) == 0.0
    assert mrr(NO_GOLD) is None


def test_format_is_the_share_of_well_formed_turns_and_independent_of_the_graph() -> None:
    """A graph episode without a search may be well-formed (R-Search: D = 0, F = 1)."""
    for one, graph, share in (
        (found("a0", turns=3, faults=("no end of thoughts",)), None, 2 / 3),
        (found("a0", turns=2), None, 1.0),
        (found(turns=2), None, 0.0),  # it never searched
        (found("a0"), None, None),  # the pipeline does not count turns
        (found(turns=1, graph=("cycle: A -> B -> A",)), 0.0, 1.0),
        (found("a0", turns=2, graph=(), faults=("no answer",)), 1.0, 0.5),
    ):
        assert (TERMS["graph"](one), TERMS["format"](one)) == (graph, share and pytest.approx(share)), one


@pytest.mark.fault(15)
def test_prices_are_negative() -> None:
    assert TERMS["length"](found(answer=" ".join(["word"] * 30))) == -1.5
    assert TERMS["length"](found()) == 0.0
    assert TERMS["search_cost"](found("a0", "b0", "c0")) == -3.0
    assert prefix_gains(TERMS["search_cost"], found("a0", "b0")) == [-1.0, -1.0]
    question = Question("q", "Who?")
    read = Step(Search(question, "Who?"), Retrieval((Passage("a", "in Bath", "Ada Brown"),)))
    assert TERMS["context_length"](Episode(question, (read, read))) == -0.08
    assert TERMS["context_length"](Episode(question)) == 0.0


def angles(texts: Sequence[str], calls: list[Sequence[str]]) -> np.ndarray:
    """Return unit vectors at the angles, in degrees, that the texts name."""
    calls.append(texts)
    turns = [math.radians(float(text)) for text in texts]
    return np.array([[math.cos(turn), math.sin(turn)] for turn in turns], dtype=np.float32)


def test_answers_are_compared_in_one_call_and_opposites_are_0() -> None:
    def answered(answer: str | None, *golds: str) -> Episode:
        return Episode(Question("q", "Who?", answers=golds), (), Outcome(answer))

    calls: list[Sequence[str]] = []
    played = [answered("0", "60", "90"), answered("0", "180"), answered("60", "60"), answered("", "0"), answered("0")]
    values = answer_similarities(lambda texts: angles(texts, calls), [*played, answered(None, "0")])
    assert values == [pytest.approx(0.5, abs=1e-6), 0.0, pytest.approx(1.0), 0.0, None, 0.0]
    assert [sorted(texts) for texts in calls] == [["0", "180", "60", "90"]]  # every text once
    reward = Reward({"answer_similarity": 2.0}, encode=lambda texts: angles(texts, calls))
    assert reward.totals(reward.score(played[:2])) == pytest.approx([1.0, 0.0], abs=1e-6)
    assert len(calls) == 2
    assert answer_similarities(lambda texts: angles(texts, calls), [played[4]]) == [None] and len(calls) == 2
