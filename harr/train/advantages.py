"""How much better than its group a rollout did."""

from collections.abc import Sequence

import torch
from torch import Tensor


def group_advantages(rewards_BG: Tensor, *, scale_by_std: bool) -> Tensor:
    """Reward minus group mean, over the group's standard deviation + 1e-4 (ddof 1).

    NaN marks a missing rollout: it is left out of the statistics and gets advantage 0. Without
    scaling this is the advantage of Dr. GRPO (arXiv 2503.20783).

    >>> group_advantages(torch.tensor([[1.0, 0, 0, 0]]), scale_by_std=False)
    tensor([[ 0.7500, -0.2500, -0.2500, -0.2500]])
    """
    centred_BG = rewards_BG - rewards_BG.nanmean(-1, keepdim=True)
    if scale_by_std:
        counts_B1 = (~rewards_BG.isnan()).sum(-1, keepdim=True)
        variance_B1 = centred_BG.square().nansum(-1, keepdim=True) / (counts_B1 - 1).clamp_min(1)
        centred_BG = centred_BG / (variance_B1.sqrt() + 1e-4)
    return centred_BG.nan_to_num(0.0)


def step_advantages(gains: Sequence[Sequence[float]], group_size: int, *, scale_by_std: bool) -> list[list[float]]:
    """Advantages of return-to-go, one per step of each episode.

    ``gains[e][t]`` is what step t of episode e added to the reward. Every position t is its own
    group: a rollout's return-to-go is compared with that of the group's rollouts at the same step,
    so that the baseline does not depend on how far an episode has got.

    >>> step_advantages([[1.0, 0.0], [0.0, 0.0]], 2, scale_by_std=False)
    [[0.5, 0.0], [-0.5, 0.0]]
    """
    longest = max((len(episode) for episode in gains), default=0)
    if longest == 0:
        return [[] for _ in gains]
    table_ES = torch.full((len(gains), longest), float("nan"), dtype=torch.float64)
    for e, episode in enumerate(gains):
        if episode:
            table_ES[e, : len(episode)] = torch.tensor(list(episode), dtype=torch.float64).flip(0).cumsum(0).flip(0)
    groups_BGS = table_ES.view(-1, group_size, longest)
    scaled_BSG = group_advantages(groups_BGS.transpose(1, 2), scale_by_std=scale_by_std)
    flat_ES = scaled_BSG.transpose(1, 2).reshape(len(gains), longest)
    return [flat_ES[e, : len(episode)].tolist() for e, episode in enumerate(gains)]
