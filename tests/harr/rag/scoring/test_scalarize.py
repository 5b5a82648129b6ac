"""Mixing rewards: worked values, ten thousand random groups, and what breaks the published schemes."""

import numpy as np
import pytest
import torch
from episodes import played

from harr.errors import ParamsError
from harr.params.train import GRPOParams
from harr.rag.scoring.reward import Reward
from harr.rag.scoring.scalarize import combine, consistent, principal
from harr.train.advantages import group_advantages
from harr.train.grpo import advantages_of

SCHEMES = ("weighted", "sum", "uniform", "std", "pca", "l2")
ONES = np.ones(3)
NAN = float("nan")


def correlation(one_BG: np.ndarray, other_BG: np.ndarray) -> np.ndarray:
    """Return the correlation per group; NaN where either side is constant."""
    one = one_BG - one_BG.mean(1, keepdims=True)
    other = other_BG - other_BG.mean(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return (one * other).sum(1) / np.sqrt(np.square(one).sum(1) * np.square(other).sum(1))


def test_the_schemes_by_hand() -> None:
    """Terms (0, 1) and (.5, .5) deviate by .5 and 0, so std gives the first all weight."""
    rewards, weights = np.array([[[0.0, 0.5], [1.0, 0.5]]]), np.array([1.0, 2.0])
    assert combine(rewards, weights, "sum") == pytest.approx(np.array([[1.0, 2.0]]))
    assert combine(rewards, weights, "uniform") == pytest.approx(np.array([[0.25, 0.75]]))
    assert combine(rewards, weights, "std") == pytest.approx(np.array([[0.0, 1.0]]))
    assert combine(rewards, weights, "l2") == pytest.approx(np.array([[0.5, np.sqrt(1.25)]]))
    assert combine(rewards, weights, "pca") == pytest.approx(np.array([[-1.0, 1.0]]))
    half = 0.5 / (np.sqrt(0.5) + 1e-4)
    assert combine(rewards, weights, "weighted") == pytest.approx(np.array([[-half, half]]))


def test_pca_never_goes_against_the_weighted_sum() -> None:
    """10,000 groups of 8 rollouts: independent, opposed and similar terms of several scales, some constant."""
    chance = np.random.default_rng(0)
    worst, inverted = 1.0, 0
    for _ in range(10):
        terms = int(chance.integers(2, 6))
        rewards = chance.normal(size=(1000, 8, terms)) * chance.choice([0.0, 0.1, 1.0, 5.0], size=(1000, 1, terms))
        rewards[::3, :, 1] = -rewards[::3, :, 0] + 0.1 * rewards[::3, :, 1]
        rewards[::5] = rewards[::5].round(0)
        weights = chance.uniform(0.05, 3.0, terms)
        score, straight = combine(rewards, weights, "pca"), combine(rewards, weights, "sum")
        assert np.isfinite(score).all()
        worst = min(worst, float(np.nanmin(correlation(score, straight))))
        centred = rewards - rewards.mean(1, keepdims=True)
        plain = centred / np.maximum(rewards.std(1, keepdims=True), 1e-8)
        component = np.linalg.svd(plain, full_matrices=False)[2][:, 0]
        inverted += int((correlation(np.einsum("bgk,bk->bg", plain, component), straight) < -0.01).sum())
    assert worst >= -1e-9
    assert inverted > 1000  # as the plain component would: the groups can show it
    rewards = chance.uniform(size=(2000, 6, 3))
    rewards[:, 1] = rewards[:, 0] + chance.uniform(size=(2000, 3))
    score = combine(rewards, ONES, "pca")
    assert (score[:, 1] - score[:, 0]).min() >= -1e-9, "what is better in every term never scores less"
    alone = chance.normal(size=(7, 6, 1))
    assert correlation(principal(alone, alone[..., 0]), alone[..., 0]) == pytest.approx(np.ones(7))


def test_a_negative_weight_turns_a_term_around() -> None:
    rewards = np.random.default_rng(2).uniform(size=(50, 6, 2))
    turned = rewards * np.array([1.0, -1.0])
    for scheme in ("weighted", "sum", "uniform", "std", "pca"):
        other = combine(rewards, np.array([1.0, -1.0]), scheme)
        assert combine(turned, np.array([1.0, 1.0]), scheme) == pytest.approx(other, abs=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_constant_terms_stay_finite_and_those_that_do_not_apply_are_as_if_not_there(scheme: str) -> None:
    rewards = np.random.default_rng(3).uniform(size=(20, 8, 3))
    for count in (1, 2, 3):
        rewards[..., :count] = 0.3
        mixed = combine(rewards, ONES, scheme)
        assert np.isfinite(mixed).all()
        assert (np.ptp(mixed, axis=1).max() < 1e-9) == (count == 3)
    rewards = np.random.default_rng(4).uniform(size=(10, 8, 3))
    missing, one_lost = rewards.copy(), rewards.copy()
    missing[..., 1] = one_lost[0, 3, 1] = NAN
    alone = combine(rewards[..., [0, 2]], np.array([1.5, 1.5]), scheme)
    assert combine(missing, ONES, scheme) == pytest.approx(alone, abs=1e-9)
    assert np.isfinite(combine(one_lost, ONES, scheme)).all()
    assert np.isfinite(combine(np.full((1, 4, 2), NAN), np.ones(2), scheme)).all()


def test_l2_refuses_negative_rewards() -> None:
    with pytest.raises(ParamsError, match=r"reward\.mix l2 takes rewards of at least 0 .*found -3") as error:
        combine(np.array([[[0.5, -3.0], [0.0, 0.0]]]), np.ones(2), "l2")
    assert "\n" not in str(error.value)
    with pytest.raises(ParamsError, match="positive weights"):
        combine(np.array([[[0.5, 3.0], [0.0, 0.0]]]), np.array([1.0, -1.0]), "l2")


def test_rollouts_that_are_better_here_and_worse_there_have_no_advantage() -> None:
    """Both terms have mean .5; the second and third episode are above it in one term and below in the other."""
    rewards = np.array([[[1.0, 0.5], [0.0, 0.0], [1.0, 0.5], [0.0, 1.0]]])
    assert consistent(rewards, np.ones(2)).tolist() == [[True, True, True, False]]
    assert consistent(rewards, np.array([1.0, -1.0])).tolist() == [[True, False, True, True]]
    found, plain = advantages(filter_by_mean=True), advantages()
    assert found == [plain[0], [0.0, 0.0], [0.0, 0.0], plain[3]]


EPISODES = [played("q", answer, *found) for answer, found in (("Ada", "a"), ("Eve", "ab"), ("Ada", "xx"), (None, "bx"))]
TERMS = {"recall": 1.0, "answer_em": 0.5}
GROUP = GRPOParams(method="grpo", group_size=4)


def advantages(**options: object) -> list[list[float]]:
    reward = Reward(TERMS, **options)
    return advantages_of(GROUP, reward, reward.score(EPISODES), EPISODES, 0)


def test_weighted_is_what_grpo_does_without_a_mix() -> None:
    """Each term is normalised in its group, then weighted and summed: exactly the loop over terms."""
    by_hand = [0.0] * 4
    for column, weight in (([0.5, 1.0, 0.0, 0.5], 1.0), ([1.0, 0.0, 1.0, 0.0], 0.5)):
        part = group_advantages(torch.tensor([column], dtype=torch.float64), "grpo").flatten().tolist()
        by_hand = [a + weight * b for a, b in zip(by_hand, part, strict=True)]
    assert advantages() == [[value] * len(e.steps) for value, e in zip(by_hand, EPISODES, strict=True)]
    reward = Reward(TERMS)
    table, weights = reward.table(reward.score(EPISODES), 0, 4)
    assert combine(table, weights, "weighted")[0] == pytest.approx(by_hand)


@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_grpo_learns_from_the_mixed_reward(scheme: str) -> None:
    """Rewards are mixed per episode, then compared within the group; all steps of an episode share its advantage."""
    rewards = np.array([[[0.5, 1.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.0]]])
    mixed = torch.from_numpy(combine(rewards, np.array([1.0, 0.5]), scheme))
    expected = group_advantages(mixed, "grpo").flatten().tolist()
    found = advantages(mix=scheme)
    assert [row[0] for row in found] == pytest.approx(expected)
    assert [len(row) for row in found] == [1, 2, 2, 2] and all(len(set(row)) == 1 for row in found)
