"""LRAT: what good rollouts chose, and the weighted contrast that is learnt."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harr.params.baselines import LratParams
from harr.params.train import GRPOParams
from harr.train.infonce import update
from harr.train.lrat import preferred
from harr.types import Episode, Passage, Question, Retrieval, Search, Step


def chose(question: Question, state: str, rows: Sequence[int]) -> Step:
    passages = tuple(Passage(str(row), "") for row in rows)
    return Step(Search(question, "Who?"), Retrieval(passages, state=state, pool=(*rows, 9)))


def test_the_positive_is_what_the_better_rollouts_chose() -> None:
    one, two = Question("one", "Who?"), Question("two", "Who?")
    episodes = [
        Episode(one, (chose(one, "s", (1, 2)), chose(one, "later", (5,)))),
        Episode(one, (chose(one, "s", (1, 3)),)),
        Episode(two, (chose(two, "t", (4,)),)),
        Episode(two, (chose(two, "t", (6,)),)),
    ]
    targets, weights, groups = preferred(episodes, [[3.0, -1.0], [-1.0], [-0.5], [1.0]])
    assert targets == {"s": "2", "t": "6"}, "of a state where all chose alike or worse nothing is learnt"
    assert weights == {"s": 1.5, "t": 0.5}
    assert groups == [("1", "2"), ("6",)]
    assert preferred(episodes, [[0.0, 0.0], [0.0], [0.0], [0.0]]) == ({}, {}, [])


class Passages:
    """Passages whose id is their row."""

    def rows_of(self, ids: Sequence[str]) -> dict[str, int]:
        return {pid: int(pid) for pid in ids}


def axes(states_UD: torch.Tensor, state_of_B: torch.Tensor, rows_BN: Any) -> torch.Tensor:
    """Scores of passages that are the unit vectors of four axes."""
    return states_UD[state_of_B].take_along_dim(torch.from_numpy(np.maximum(rows_BN, 0)), dim=-1)


@pytest.mark.parametrize("weights", [None, {"s": 1.5, "t": 0.5}])
def test_the_loss_is_the_weighted_cross_entropy_over_positives_and_what_was_not_chosen(
    weights: dict[str, float] | None,
) -> None:
    state_D = torch.tensor([[0.1, 0.2, 0.3, 0.4]], requires_grad=True)
    learner = SimpleNamespace(
        optimizer=SimpleNamespace(zero_grad=lambda: None),
        dense=SimpleNamespace(scores=axes, passages=Passages(), temperature=0.05),
        vectors=lambda states: state_D.repeat(len(states), 1),
        backward=lambda loss: loss.backward(),
        update=dict,
        term=lambda known, states, rows_UN: 0.0,
    )
    params = GRPOParams(method="grpo", states_per_pass=1)
    pools = {"s": (0, 2, 1), "t": (3, 2)}
    found = update(
        params,
        LratParams(temperature=0.2, hard_negatives=1),
        learner,  # type: ignore[arg-type]
        {"s": "0", "t": "3"},
        [("0", "1"), ("3",)],
        pools,
        {},
        weights,
    )["loss"]
    expected = 0.0
    for state, positive, others in (("s", 0, [3, 2]), ("t", 3, [0, 1, 2])):
        scores = state_D.detach()[0, [positive, *others]].double() / 0.2
        expected -= float(torch.log_softmax(scores, 0)[0]) * (weights[state] if weights else 1.0) / 2
    assert found == pytest.approx(expected, rel=1e-4)
