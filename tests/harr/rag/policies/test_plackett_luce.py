"""Plackett-Luce against enumeration: probabilities, sampling frequencies, and the gradient estimator."""

import math
from itertools import permutations

import pytest
import torch

from harr.rag.policies.plackett_luce import LEVEL, MASKED, entropy, keeps, log_prob, sample
from harr.train.advantages import group_advantages


def orders(n: int, k: int) -> torch.Tensor:
    """Return every ordered K-subset of N, each followed by the rest in ascending order."""
    rows = [(*head, *[i for i in range(n) if i not in head]) for head in permutations(range(n), k)]
    return torch.tensor(rows)


def all_log_probs(logits_N: torch.Tensor, orders_PN: torch.Tensor, k: int) -> torch.Tensor:
    return log_prob(logits_N[orders_PN], torch.full((len(orders_PN),), k))


def test_log_prob_is_invariant_to_a_shift_and_to_padding_and_of_one_choice_log_softmax() -> None:
    logits_BN = torch.tensor([[0.3, -1.0, 2.0]], dtype=torch.float64)
    padded_BN = torch.cat([logits_BN + 7.0, torch.full((1, 2), MASKED, dtype=torch.float64)], -1)
    two = torch.tensor([2])
    assert torch.allclose(log_prob(padded_BN, two), log_prob(logits_BN, two), atol=1e-9)
    logits_BN = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    one = log_prob(logits_BN, torch.ones(3, dtype=torch.int64))
    assert torch.allclose(one, logits_BN.log_softmax(-1)[:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("n", "k", "kept"), [(5, 1, 0), (4, 2, 0), (5, 3, 0), (5, 3, 1), (5, 3, 2), (5, 3, 3), (4, 4, 1)]
)
def test_ranks_after_those_kept_are_a_choice_among_the_rest(n: int, k: int, kept: int) -> None:
    """By enumeration: given the first ranks, the others are Plackett-Luce over the rest, and sampled so."""
    logits_N = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(6)).sort(descending=True)[0]
    table_PN = orders(n, k)
    own_PN = table_PN[(table_PN[:, :kept] == torch.arange(kept)).all(-1)]
    count = len(own_PN)
    fixed = [torch.full((count,), kept)] if kept else []
    logs_P = log_prob(logits_N[own_PN], torch.full((count,), k), *fixed)
    assert logs_P.exp().sum().item() == pytest.approx(1.0, abs=1e-12)
    for order_N, log_p in zip(own_PN.tolist(), logs_P, strict=True):
        by_hand = 1.0
        for rank in range(kept, k):
            by_hand *= float(logits_N[order_N[rank]].exp() / logits_N[order_N[rank:]].exp().sum())
        assert log_p.exp().item() == pytest.approx(by_hand, rel=1e-12)
    draws = 20_000
    kept_B = torch.full((draws,), kept)
    drawn = sample(logits_N.expand(draws, n), torch.Generator().manual_seed(7), *([kept_B] if kept else []))
    assert (drawn[:, :kept] == torch.arange(kept)).all() and keeps(logits_N[drawn], kept_B).all()
    for order, p in zip(own_PN, logs_P.exp().tolist(), strict=True):
        seen = (drawn[:, :k] == order[:k]).all(-1).float().mean().item()
        assert abs(seen - p) <= 4.5 * (p * (1 - p) / draws) ** 0.5 + 1e-12


def test_a_model_keeps_its_best_alone() -> None:
    logits_BN = torch.tensor([[2.0, 1.0, 3.0], [3.0, 1.0, 2.0], [3.0, 2.0, 1.0], [3.0, 3.0 + LEVEL / 2, MASKED]])
    for kept, expected in ((0, [True] * 4), (1, [False, True, True, True]), (2, [False, False, True, True])):
        assert keeps(logits_BN, torch.full((4,), kept)).tolist() == expected


def test_padding_is_never_drawn_and_has_no_part_in_the_entropy() -> None:
    logits_BN = torch.tensor([[MASKED, 0.0, MASKED, -3.0]]).expand(200, 4)
    drawn = sample(logits_BN, torch.Generator().manual_seed(3))[:, :2]
    assert set(drawn.flatten().tolist()) == {1, 3}
    found = entropy(torch.tensor([[50.0, 0.0, MASKED], [0.0, math.log(3.0), MASKED]]))
    by_hand = [0.0, 0.75 * math.log(4 / 3) + 0.25 * math.log(4)]  # a certain choice, and probabilities .25 and .75
    assert found.tolist() == pytest.approx(by_hand, abs=1e-6)


REWARDS_P = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def enumerated(reward_P: torch.Tensor, group: int, estimator: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the true gradient of the expected reward, and the estimator's mean over all groups of rollouts."""
    logits_N = torch.tensor([0.2, -0.4, 1.1, 0.0], dtype=torch.float64, requires_grad=True)
    logs_P = all_log_probs(logits_N, orders(4, 2), 2)
    p_P = logs_P.exp().detach()
    (exact_N,) = torch.autograd.grad((logs_P.exp() * reward_P).sum(), logits_N, retain_graph=True)
    groups_QG = torch.cartesian_prod(*[torch.arange(len(p_P))] * group)
    advantage_QG = group_advantages(reward_P[groups_QG], estimator)
    mean = (p_P[groups_QG].prod(-1) * (advantage_QG * logs_P[groups_QG]).mean(-1)).sum()
    (estimate_N,) = torch.autograd.grad(mean, logits_N)
    return exact_N, estimate_N


@pytest.mark.parametrize("group", [2, 3])
@pytest.mark.parametrize("estimator", ["rloo", "dr_grpo"])
def test_rloo_is_unbiased_and_dr_grpo_up_to_its_known_factor(estimator: str, group: int) -> None:
    """Over all groups: RLOO gives the true gradient; a group mean that includes the rollout gives (G-1)/G of it."""
    exact_N, estimate_N = enumerated(REWARDS_P, group, estimator)
    factor = (group - 1) / group if estimator == "dr_grpo" else 1.0
    assert torch.allclose(estimate_N, factor * exact_N, rtol=1e-6)


@pytest.mark.parametrize("estimator", ["grpo", "bnpo"])
def test_dividing_by_the_deviation_keeps_the_direction_for_two_rewards_only(estimator: str) -> None:
    """With rewards 0 and 1 the mean is a multiple of the true gradient; with more values its direction differs."""
    exact_N, estimate_N = enumerated((REWARDS_P > 0.5).double(), 3, estimator)
    assert torch.cosine_similarity(estimate_N, exact_N, dim=0).item() == pytest.approx(1.0, abs=1e-9)
    exact_N, estimate_N = enumerated(REWARDS_P, 3, estimator)
    assert 0.9 < torch.cosine_similarity(estimate_N, exact_N, dim=0).item() < 1 - 1e-4
