"""Advantages, losses and guards against numbers worked by hand and those of HARR's own code.

``python -m benchmarks.peers.harr_code FOLDER`` computed the latter; the file names the commit.
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
from harr.train.advantages import generalized_advantages, group_advantages, step_advantages
from harr.train.guard import best_step, find_stop_reason
from harr.train.losses import clipped_surrogate, clipped_value, k3_kl, step_weights
from harr.types import Episode, Question

THEIRS: dict[str, Any] = read_json(Path(__file__).with_name("harr_numbers.json"))


@pytest.mark.fault(12)
def test_advantages_of_a_group() -> None:
    """One success in four: mean 1/4, std (ddof 1) 1/2: 1.5 and -.5, before the 1e-4."""
    for successes, size, wanted in ((1, 4, [1.5, -0.5]), (1, 8, [2.475, -0.3536])):
        rewards_BG = torch.tensor([[1.0] * successes + [0.0] * (size - successes)])
        assert group_advantages(rewards_BG, "grpo")[0, :2].tolist() == pytest.approx(wanted, abs=2e-3)
    assert group_advantages(torch.full((2, 4), 0.7), "grpo").abs().max() < 1e-2, "equal rewards give none"


def test_a_missing_rollout_leaves_the_statistics_alone() -> None:
    with_gap = group_advantages(torch.tensor([[1.0, 0.0, float("nan")]]), "grpo")[0]
    without = group_advantages(torch.tensor([[1.0, 0.0]]), "grpo")[0]
    assert with_gap.tolist() == pytest.approx([*without.tolist(), 0.0])


def test_return_to_go_is_compared_at_the_same_step() -> None:
    """Returns to go: (2, 1), (1, 1), (1, 0), (0,): step 1 has mean 1, step 2 mean 2/3."""
    result = step_advantages([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0]], 4, "dr_grpo")
    assert result[0] == pytest.approx([1.0, 1 / 3])
    assert result[1] == pytest.approx([0.0, 1 / 3])
    assert result[2] == pytest.approx([0.0, -2 / 3])
    assert result[3] == pytest.approx([-1.0])
    assert step_advantages([[], []], 2, "grpo") == [[], []]


def test_clip_stops_the_gradient_only_in_the_good_direction() -> None:
    new = torch.tensor([0.5, 0.5, -0.5, -0.5], requires_grad=True)
    loss = clipped_surrogate(new, torch.zeros(4), torch.tensor([1.0, -1.0, 1.0, -1.0]), 0.2, 0.2)
    assert loss.tolist() == pytest.approx([-1.2, 1.6487, -0.6065, 0.8], abs=1e-4)
    loss.sum().backward()
    assert [g != 0 for g in new.grad.tolist()] == [False, True, True, False]


def test_k3_is_zero_at_equality_and_positive_elsewhere() -> None:
    values = k3_kl(torch.tensor([0.0, -1.0, 1.0]), torch.zeros(3))
    assert values.tolist() == pytest.approx([0.0, 0.71828, 0.36788], abs=1e-4)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("grpo", [1 / 2, 1 / 6, 1 / 6, 1 / 6]), ("bnpo", [1 / 4] * 4), ("dr_grpo", [1 / 3] * 4), ("rloo", [1 / 3] * 4)],
)
def test_step_weights(estimator: str, expected: list[float]) -> None:
    """Episodes of 1, 3 and 0 steps; the one without a search has no row."""
    assert step_weights([1, 3, 0], estimator).tolist() == pytest.approx(expected)


def test_gae_between_its_ends() -> None:
    """Deltas: .5 + .9 * .4 - .2 = .66 and 1 - .4 = .6; advantage 0 is .66 + .9 * .5 * .6 = .93."""
    advantages, targets = generalized_advantages([0.5, 1.0], [0.2, 0.4], discount=0.9, lambda_=0.5)
    assert advantages == pytest.approx([0.93, 0.6])
    assert targets == pytest.approx([1.13, 1.0])
    assert generalized_advantages([], [], discount=0.9, lambda_=0.5) == ([], [])


def test_the_value_loss_takes_the_worse_of_free_and_clipped() -> None:
    """Clipped to .2: half of (.2 - 1)^2; being nearer to the target than the clip allows is not rewarded."""
    loss = clipped_value(torch.tensor([0.9, 0.1]), torch.zeros(2), torch.ones(2), 0.2)
    assert loss.tolist() == pytest.approx([0.32, 0.405])


@pytest.mark.fault(12)
def test_the_guard_stops_a_collapse_and_knows_the_best_checkpoint() -> None:
    rows = [{"reward_mean": r} for r in (0.2, 0.8, 0.9, 0.9, 0.1, 0.1)]
    assert find_stop_reason(rows[:5], 2, 0.5) == ""
    assert "fell to 0.100, under 50 % of its best 0.900" in find_stop_reason(rows, 2, 0.5)
    assert find_stop_reason(rows, 2, 0.0) == ""
    assert best_step(rows, 2, [2, 4]) == 4
    broken = [{"reward_mean": 0.5, "skipped_updates": 1.0}] * 3
    assert (
        "the gradient was not finite in 3 steps" in find_stop_reason(broken, 2, 0.5)
        and find_stop_reason(broken[:2], 2, 0.5) == ""
    )


@pytest.mark.fault(12)
def test_the_guard_stops_a_run_whose_groups_all_agree() -> None:
    alike, unlike = ({"reward_mean": 0.5, "without_advantage": share} for share in (1.0, 0.0))
    said = find_stop_reason([unlike, alike, alike, alike], 3, 0.5)
    assert said.startswith(
        "no group's rewards differed in the last 3 steps, so nothing is learnt; raise train.group_size"
    )
    assert find_stop_reason([alike] * 3, 3, 0.0) == said, "also where no fall is watched for"
    assert find_stop_reason([alike] * 2, 3, 0.5) == "" == find_stop_reason([alike, alike, unlike], 3, 0.5)
    harder = [row | {"phase": 1.0} for row in (alike, alike)]
    assert find_stop_reason([alike, alike, *harder], 3, 0.5) == "", "other questions have their own steps"
    assert find_stop_reason([*harder, harder[0]], 3, 0.5) == said
    assert find_stop_reason([{"reward_mean": 1.0, "zero_std_share": 1.0}] * 5, 3, 0.5) == "", (
        "PPO, PQN and InfoNCE learn on"
    )


def first(logits_BN: torch.Tensor, orders: list[list[int]]) -> torch.Tensor:
    """Put each row's chosen candidates first, as our functions expect."""
    count = logits_BN.shape[-1]
    return torch.stack(
        [row[[*order, *(set(range(count)) - set(order))]] for row, order in zip(logits_BN, orders, strict=True)]
    )


def test_probabilities_of_orders() -> None:
    theirs = THEIRS["choosing"]
    logits_BN = first(torch.tensor(theirs["logits"], dtype=torch.float64), theirs["orders"])
    ours = log_prob(logits_BN, torch.tensor([len(order) for order in theirs["orders"]]))
    assert ours.tolist() == pytest.approx(theirs["log_probs"], abs=1e-12)


def test_their_draws_follow_our_probabilities() -> None:
    theirs = THEIRS["choosing"]
    orders = [ast.literal_eval(order) for order in theirs["draws"]]
    logits_BN = torch.tensor([theirs["scores"]] * len(orders), dtype=torch.float64) / theirs["temperature"]
    share_B = log_prob(first(logits_BN, orders), torch.tensor([2] * len(orders))).exp()
    counts_B, total = torch.tensor(list(theirs["draws"].values())), sum(theirs["draws"].values())
    assert len(orders) == 12 and share_B.sum() == pytest.approx(1)
    errors_B = (counts_B - total * share_B) / (total * share_B * (1 - share_B)).sqrt()
    assert errors_B.abs().max() < 4


@pytest.mark.parametrize("case", THEIRS["advantages"], ids=lambda case: f"scale-{case['scale']}")
def test_their_advantages_of_a_group(case: dict[str, Any]) -> None:
    rewards_BG = torch.tensor(case["rewards"], dtype=torch.float32).view(-1, 4)
    ours = group_advantages(rewards_BG, "grpo" if case["scale"] else "dr_grpo")
    assert ours.flatten().tolist() == pytest.approx(case["advantages"], abs=1e-6)


@pytest.mark.parametrize("case", THEIRS["losses"]["losses"], ids=lambda case: f"{case['kind']}-{case['beta']}")
def test_their_losses_and_their_gradient(case: dict[str, Any]) -> None:
    """Theirs adds 1e-7 to the temperature, and their ``dr_grpo`` also divides by the steps of the longest episode."""
    game = THEIRS["losses"]
    tensors = {name: torch.tensor(game[name], dtype=torch.float64) for name in ("passages", "old", "reference")}
    states_SD = torch.tensor(game["states"], dtype=torch.float64, requires_grad=True)
    logits_SN = torch.einsum("snd,sd->sn", tensors["passages"], states_SD) / (game["temperature"] + 1e-7)
    new_S = log_prob(logits_SN, torch.full((len(states_SD),), game["chosen"]))
    steps = torch.tensor(game["steps"])
    advantages_S = torch.tensor(game["advantages"], dtype=torch.float64).repeat_interleave(steps)
    loss_S = clipped_surrogate(new_S, tensors["old"], advantages_S, 0.2, 0.2)
    loss_S = loss_S + case["beta"] * k3_kl(new_S, tensors["reference"])
    loss = (loss_S * step_weights(game["steps"], case["kind"])).sum()
    loss = loss / (max(game["steps"]) if case["kind"] == "dr_grpo" else 1)
    loss.backward()
    assert states_SD.grad is not None
    assert loss.item() == pytest.approx(case["loss"], abs=1e-6)
    assert torch.allclose(states_SD.grad, torch.tensor(case["gradient"], dtype=torch.float64), atol=1e-6)


def test_their_generalised_advantages_of_ppo() -> None:
    theirs = THEIRS["gae"]
    discounts = {"discount": theirs["discount"], "lambda_": theirs["lambda"]}
    advantages, returns = generalized_advantages(theirs["rewards"], theirs["values"], **discounts)
    assert advantages == pytest.approx(theirs["advantages"]) and returns == pytest.approx(theirs["returns"])


@pytest.mark.parametrize("case", THEIRS["filter"], ids=lambda case: str(case["f1"]))
def test_the_filter_keeps_what_theirs_keeps(case: dict[str, Any]) -> None:
    question = Question("q", "Who?")
    reward = SimpleNamespace(score=lambda episodes: {}, totals_or_none=lambda scores, step: case["f1"])
    setup: Any = SimpleNamespace(reward=reward)
    assert _judge(question, [Episode(question)] * len(case["f1"]), setup)["kept"] == case["kept"]
