"""LRAT and REPLUG: what the rollouts of a group tell of passages, and the contrast and divergence that are learnt."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harr.params.baselines import LratParams, ReplugParams
from harr.params.train import GRPOParams
from harr.train import infonce, replug
from harr.train.lrat import preferred
from harr.train.replug import passage_rewards
from harr.types import Episode, Passage, Question, Retrieval, Search, Step


def chose(state: str, rows: Sequence[int]) -> Step:
    passages = tuple(Passage(str(row), "") for row in rows)
    return Step(Search(Question("q", "Who?"), "Who?"), Retrieval(passages, state=state, pool=(*rows, 9)))


def axes(states_UD: torch.Tensor, state_of_B: torch.Tensor, rows_BN: Any) -> torch.Tensor:
    """Scores of passages that are the unit vectors of four axes."""
    return states_UD[state_of_B].take_along_dim(torch.from_numpy(np.maximum(rows_BN, 0)), dim=-1)


@pytest.fixture
def learner() -> Any:
    """As much of a Learner as an update looks at; every state has the vector ``state``, passages are their ids."""
    state_D = torch.tensor([[0.1, 0.2, 0.3, 0.4]], requires_grad=True)
    passages = SimpleNamespace(rows_of=lambda ids: {pid: int(pid) for pid in ids})
    return SimpleNamespace(
        state=state_D,
        optimizer=SimpleNamespace(zero_grad=lambda: None),
        dense=SimpleNamespace(scores=axes, passages=passages, temperature=0.05),
        vectors=lambda states: state_D.repeat(len(states), 1),
        backward=lambda loss: loss.backward(),
        update=dict,
        term=lambda known, states, rows_UN: 0.0,
    )


def test_the_positive_is_what_the_better_rollouts_chose() -> None:
    one, two = Question("one", "Who?"), Question("two", "Who?")
    episodes = [
        Episode(one, (chose("s", (1, 2)), chose("later", (5,)))),
        Episode(one, (chose("s", (1, 3)),)),
        Episode(two, (chose("t", (4,)),)),
        Episode(two, (chose("t", (6,)),)),
    ]
    targets, weights, groups = preferred(episodes, [[3.0, -1.0], [-1.0], [-0.5], [1.0]])
    assert targets == {"s": "2", "t": "6"}, "of a state where all chose alike or worse nothing is learnt"
    assert weights == {"s": 1.5, "t": 0.5}
    assert groups == [("1", "2"), ("6",)]
    assert preferred(episodes, [[0.0, 0.0], [0.0], [0.0], [0.0]]) == ({}, {}, [])


@pytest.mark.parametrize("weights", [None, {"s": 1.5, "t": 0.5}])
def test_the_loss_is_the_weighted_cross_entropy_over_positives_and_what_was_not_chosen(
    learner: Any, weights: dict[str, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infonce, "shares", lambda states, size: [(0, 1), (1, 1), (1, 2)])  # of a process, one is empty
    params, section = GRPOParams(method="grpo", states_per_pass=1), LratParams(temperature=0.2, hard_negatives=1)
    targets, groups, pools = {"s": "0", "t": "3"}, [("0", "1"), ("3",)], {"s": (0, 2, 1), "t": (3, 2)}
    found = infonce.update(params, section, learner, targets, groups, pools, {}, weights)["loss"]
    expected = 0.0
    for state, positive, others in (("s", 0, [3, 2]), ("t", 3, [0, 1, 2])):
        scores = learner.state.detach()[0, [positive, *others]].double() / 0.2
        expected -= float(torch.log_softmax(scores, 0)[0]) * (weights[state] if weights else 1.0) / 2
    assert found == pytest.approx(expected, rel=1e-4)


def test_a_passage_is_worth_what_the_rollouts_that_chose_it_earned_on_average() -> None:
    question = Question("q", "Who?")
    group = [
        Episode(question, (chose("s", (1, 2)), chose("later", (5,)))),
        Episode(question, (chose("s", (1, 3)),)),
        Episode(question, (chose("s", (2, 3)),)),
        Episode(question, (chose("alone", (4, 6)),)),
    ]
    rewards = passage_rewards([*group, *group], [1.0, 0.0, 1.0, 0.0, *[0.5] * 4], 4)
    told = {"s": {1: 0.5, 2: 1.0, 3: 0.5, 9: 0.5}}
    assert rewards == told, "what nobody compared is left out; what nobody chose is worth no more than the worst"


@pytest.mark.parametrize("temperature", [None, 0.5])
def test_the_loss_is_the_divergence_of_both_distributions(learner: Any, temperature: float | None) -> None:
    section = ReplugParams(target_temperature=0.2, temperature=temperature)
    params = GRPOParams(method="grpo", replug=section, states_per_pass=1)
    rewards = {"s": {0: 0.5, 3: 1.0, 1: 0.0}, "t": {2: 1.0, 1: 0.0}}
    found = replug.update(params, learner, rewards, {})["loss"]
    gamma, expected = temperature or 0.05, 0.0
    for worth in rewards.values():
        p = torch.softmax(learner.state.detach()[0, list(worth)].double() / gamma, 0)
        q = torch.softmax(torch.tensor(list(worth.values())).double() / 0.2, 0)
        expected += float((p * (p / q).log()).sum()) / 2
    assert found == pytest.approx(expected, rel=1e-4)
    assert torch.isfinite(learner.state.grad).all() and float(learner.state.grad.abs().max()) > 0
