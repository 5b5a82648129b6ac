"""REPLUG: rewards of passages, and the divergence that is learnt."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harr.params.baselines import ReplugParams
from harr.params.train import GRPOParams
from harr.train.replug import passage_rewards, update
from harr.types import Episode, Passage, Question, Retrieval, Search, Step


def chose(state: str, rows: Sequence[int], rest: Sequence[int] = (9,)) -> Step:
    question = Question("q", "Who?")
    passages = tuple(Passage(str(row), "") for row in rows)
    return Step(Search(question, "Who?"), Retrieval(passages, state=state, pool=(*rows, *rest)))


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


def axes(states_UD: torch.Tensor, state_of_B: torch.Tensor, rows_BN: Any) -> torch.Tensor:
    """Scores of passages that are the unit vectors of four axes."""
    return states_UD[state_of_B].take_along_dim(torch.from_numpy(np.maximum(rows_BN, 0)), dim=-1)


@pytest.mark.parametrize("temperature", [None, 0.5])
def test_the_loss_is_the_divergence_of_both_distributions(temperature: float | None) -> None:
    state_D = torch.tensor([[0.1, 0.2, 0.3, 0.4]], requires_grad=True)
    learner = SimpleNamespace(
        optimizer=SimpleNamespace(zero_grad=lambda: None),
        dense=SimpleNamespace(scores=axes, temperature=0.05),
        vectors=lambda states: state_D.repeat(len(states), 1),
        backward=lambda loss: loss.backward(),
        update=dict,
        term=lambda known, states, rows_UN: 0.0,
    )
    section = ReplugParams(target_temperature=0.2, temperature=temperature)
    params = GRPOParams(method="grpo", replug=section, states_per_pass=1)
    rewards = {"s": {0: 0.5, 3: 1.0, 1: 0.0}, "t": {2: 1.0, 1: 0.0}}
    found = update(params, learner, rewards, {})["loss"]  # type: ignore[arg-type]
    gamma, expected = temperature or 0.05, 0.0
    for worth in rewards.values():
        p = torch.softmax(state_D.detach()[0, list(worth)].double() / gamma, 0)
        q = torch.softmax(torch.tensor(list(worth.values())).double() / 0.2, 0)
        expected += float((p * (p / q).log()).sum()) / 2
    assert found == pytest.approx(expected, rel=1e-4)
    assert torch.isfinite(state_D.grad).all() and float(state_D.grad.abs().max()) > 0  # type: ignore[union-attr]
