"""Advantages of rollouts: group baselines (GRPO and variants), GAE (PPO), lambda-returns (PQN)."""

from collections.abc import Sequence

import torch
from torch import Tensor

NEGLIGIBLE = 1e-6
"""Advantages below this are rounding errors: the group's rewards are equal."""


def group_advantages(rewards_BG: Tensor, estimator: str) -> Tensor:
    """Return each reward minus a baseline from its own group.

    ``grpo`` and ``bnpo``: the group's mean, then division by its standard deviation + 1e-4 (ddof 1;
    arXiv 2402.03300). ``dr_grpo``: the group's mean (arXiv 2503.20783). ``rloo``: the mean of the
    *other* rollouts (arXiv 2402.14740). NaN marks a missing rollout: the statistics ignore it, and
    its advantage is 0.

    In expectation over groups of G, ``rloo`` gives the policy gradient and ``dr_grpo`` (G - 1) / G of
    it. ``grpo`` gives its direction only for two-valued rewards: dividing by a deviation that
    depends on the rollout itself weights questions by difficulty (tests enumerate all three).

    >>> group_advantages(torch.tensor([[1.0, 0, 0, 0]]), "dr_grpo")
    tensor([[ 0.7500, -0.2500, -0.2500, -0.2500]])
    >>> group_advantages(torch.tensor([[1.0, 0, 0, 0]]), "rloo")
    tensor([[ 1.0000, -0.3333, -0.3333, -0.3333]])
    """
    counts_B1 = (~rewards_BG.isnan()).sum(-1, keepdim=True)
    centred_BG = rewards_BG - rewards_BG.nanmean(-1, keepdim=True)
    if estimator == "rloo":
        centred_BG = centred_BG * counts_B1 / (counts_B1 - 1).clamp_min(1)
    elif estimator != "dr_grpo":
        variance_B1 = centred_BG.square().nansum(-1, keepdim=True) / (counts_B1 - 1).clamp_min(1)
        centred_BG = centred_BG / (variance_B1.sqrt() + 1e-4)
    return centred_BG.nan_to_num(0.0)


def all_alike(rewards: Sequence[float | None], group_size: int) -> bool:
    """Return whether the rewards within every group of ``group_size`` are equal; None means no reward.

    >>> all_alike([1.0, None, 1.0, 0.5, 0.5, 0.5], 3), all_alike([1.0, 1.0, 0.5, 0.4], 2)
    (True, False)
    """
    table_E = torch.tensor([float("nan") if reward is None else reward for reward in rewards], dtype=torch.float64)
    advantages_BG = group_advantages(table_E.view(-1, group_size), "dr_grpo")
    return bool((advantages_BG.abs() < NEGLIGIBLE).all())


def step_advantages(
    step_rewards: Sequence[Sequence[float]], group_size: int, estimator: str, discount: float = 1.0
) -> list[list[float]]:
    """Return the return-to-go advantages, one per step of each episode.

    ``step_rewards[e][t]`` is the gain of step t of episode e. Every position t is its own group: a rollout's
    return-to-go is compared with those of the group's other rollouts at the same step, so the baseline does not depend
    on an episode's progress. With a ``discount`` below 1 a step gets less credit for later gains.

    >>> step_advantages([[1.0, 0.0], [0.0, 0.0]], 2, "dr_grpo")
    [[0.5, 0.0], [-0.5, 0.0]]
    """
    longest = max((len(episode) for episode in step_rewards), default=0)
    if longest == 0:
        return [[] for _ in step_rewards]
    table_ES = torch.full((len(step_rewards), longest), float("nan"), dtype=torch.float64)
    for e, episode in enumerate(step_rewards):
        if episode:
            table_ES[e, : len(episode)] = torch.tensor(returns_to_go(episode, discount), dtype=torch.float64)
    groups_BGS = table_ES.view(-1, group_size, longest)
    scaled_BSG = group_advantages(groups_BGS.transpose(1, 2), estimator)
    flat_ES = scaled_BSG.transpose(1, 2).reshape(len(step_rewards), longest)
    return [flat_ES[e, : len(episode)].tolist() for e, episode in enumerate(step_rewards)]


def returns_to_go(rewards_S: Sequence[float], discount: float) -> list[float]:
    """Return the return-to-go of every step: its reward plus the discounted later ones.

    >>> returns_to_go([1.0, 0.0, 1.0], 0.5)
    [1.25, 0.5, 1.0]
    """
    returns: list[float] = []
    for reward in reversed(rewards_S):
        returns.append(reward + discount * (returns[-1] if returns else 0.0))
    return returns[::-1]


def generalized_advantages(
    rewards_S: Sequence[float], values_S: Sequence[float], *, discount: float, lambda_: float
) -> tuple[list[float], list[float]]:
    """Return GAE(discount, ``lambda_``) for one episode that ends after its last step (arXiv 1506.02438, eq. 16).

    Returns: advantages and value targets (advantage + value), one per step. ``lambda_`` 1 gives Monte Carlo
    returns, 0 the one-step temporal difference.

    >>> generalized_advantages([0.0, 1.0], [0.5, 0.5], discount=1.0, lambda_=1.0)
    ([0.5, 0.5], [1.0, 1.0])
    >>> generalized_advantages([0.0, 1.0], [0.5, 0.25], discount=1.0, lambda_=0.0)
    ([-0.25, 0.75], [0.25, 1.0])
    """
    advantages: list[float] = []
    following, next_value = 0.0, 0.0
    for reward, value in zip(reversed(rewards_S), reversed(values_S), strict=True):
        following = reward + discount * next_value - value + discount * lambda_ * following
        next_value = value
        advantages.append(following)
    advantages.reverse()
    return advantages, [advantage + value for advantage, value in zip(advantages, values_S, strict=True)]


def lambda_returns(
    rewards_S: Sequence[float], values_S: Sequence[float], *, discount: float, lambda_: float
) -> list[float]:
    """Return the targets for one episode that ends after its last step (PQN, arXiv 2407.04811, eq. 9).

    ``values_S[t]`` is the value of the state *before* step t; after the last step there is none. ``lambda_`` 1 gives
    the discounted return, 0 the one-step target r + discount x V(next).

    >>> lambda_returns([0.0, 1.0], [0.3, 0.6], discount=0.5, lambda_=1.0)
    [0.5, 1.0]
    >>> lambda_returns([0.0, 1.0], [0.3, 0.6], discount=0.5, lambda_=0.0)
    [0.3, 1.0]
    """
    returns: list[float] = []
    following = 0.0
    for step in reversed(range(len(rewards_S))):
        last = step + 1 == len(rewards_S)
        next_return = 0.0 if last else (1.0 - lambda_) * values_S[step + 1] + lambda_ * following
        following = rewards_S[step] + discount * next_return
        returns.append(following)
    return returns[::-1]
