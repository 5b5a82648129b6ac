"""Ours against numbers that the authors' own code of HARR computed.

``python -m benchmarks.peers.harr_code FOLDER`` computed them; the file says from which commit.
"""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harr.filter import _judge
from harr.io.files import read_json
from harr.rag.policies.plackett_luce import log_prob
from harr.train.advantages import generalized_advantages, group_advantages
from harr.train.losses import clipped_surrogate, k3_kl, step_weights
from harr.types import Episode, Question

THEIRS: dict[str, Any] = read_json(Path(__file__).with_name("harr_numbers.json"))


def first(logits_BN: torch.Tensor, orders: list[list[int]]) -> torch.Tensor:
    """Put the chosen candidates of each row before the others, as ours wants them."""
    count = logits_BN.shape[-1]
    return torch.stack(
        [row[[*order, *(set(range(count)) - set(order))]] for row, order in zip(logits_BN, orders, strict=True)]
    )


def test_probabilities_of_orders() -> None:
    told = THEIRS["choosing"]
    logits_BN = first(torch.tensor(told["logits"], dtype=torch.float64), told["orders"])
    ours = log_prob(logits_BN, torch.tensor([len(order) for order in told["orders"]]))
    assert ours.tolist() == pytest.approx(told["log_probs"], abs=1e-12)


def test_their_draws_follow_our_probabilities() -> None:
    told = THEIRS["choosing"]
    orders = [ast.literal_eval(order) for order in told["draws"]]
    logits_BN = torch.tensor([told["scores"]] * len(orders), dtype=torch.float64) / told["temperature"]
    share_B = log_prob(first(logits_BN, orders), torch.tensor([2] * len(orders))).exp()
    counts_B, total = torch.tensor(list(told["draws"].values())), sum(told["draws"].values())
    assert len(orders) == 12 and share_B.sum() == pytest.approx(1)
    errors_B = (counts_B - total * share_B) / (total * share_B * (1 - share_B)).sqrt()
    assert errors_B.abs().max() < 4


@pytest.mark.parametrize("told", THEIRS["advantages"], ids=lambda told: f"scale-{told['scale']}")
def test_advantages_of_a_group(told: dict[str, Any]) -> None:
    rewards_BG = torch.tensor(told["rewards"], dtype=torch.float32).view(-1, 4)
    ours = group_advantages(rewards_BG, "grpo" if told["scale"] else "dr_grpo")
    assert ours.flatten().tolist() == pytest.approx(told["advantages"], abs=1e-6)


@pytest.mark.parametrize("told", THEIRS["losses"]["losses"], ids=lambda told: f"{told['kind']}-{told['beta']}")
def test_losses_and_their_gradient(told: dict[str, Any]) -> None:
    """Theirs adds 1e-7 to the temperature, and ``dr_grpo`` of theirs divides by the longest episode's steps as well."""
    game = THEIRS["losses"]
    tensors = {name: torch.tensor(game[name], dtype=torch.float64) for name in ("passages", "old", "reference")}
    states_SD = torch.tensor(game["states"], dtype=torch.float64, requires_grad=True)
    logits_SN = torch.einsum("snd,sd->sn", tensors["passages"], states_SD) / (game["temperature"] + 1e-7)
    new_S = log_prob(logits_SN, torch.full((len(states_SD),), game["chosen"]))
    steps = torch.tensor(game["steps"])
    advantages_S = torch.tensor(game["advantages"], dtype=torch.float64).repeat_interleave(steps)
    loss_S = clipped_surrogate(new_S, tensors["old"], advantages_S, 0.2, 0.2, told["delta"])
    loss_S = loss_S + told["beta"] * k3_kl(new_S, tensors["reference"])
    loss = (loss_S * step_weights(game["steps"], told["kind"])).sum()
    loss = loss / (max(game["steps"]) if told["kind"] == "dr_grpo" else 1)
    loss.backward()
    assert states_SD.grad is not None
    assert loss.item() == pytest.approx(told["loss"], abs=1e-6)
    assert torch.allclose(states_SD.grad, torch.tensor(told["gradient"], dtype=torch.float64), atol=1e-6)


def test_generalised_advantages_of_ppo() -> None:
    told = THEIRS["gae"]
    discounts = {"discount": told["discount"], "lambda_": told["lambda"]}
    advantages, returns = generalized_advantages(told["rewards"], told["values"], **discounts)
    assert advantages == pytest.approx(told["advantages"]) and returns == pytest.approx(told["returns"])


@pytest.mark.parametrize("told", THEIRS["filter"], ids=lambda told: str(told["f1"]))
def test_the_filter_keeps_what_theirs_keeps(told: dict[str, Any]) -> None:
    question = Question("q", "Who?")
    reward = SimpleNamespace(score=lambda episodes: {}, totals_or_none=lambda scores, step: told["f1"])
    setup: Any = SimpleNamespace(reward=reward)
    assert _judge(question, [Episode(question)] * len(told["f1"]), setup)["kept"] == told["kept"]
