"""Losses as pure functions of tensors."""

import torch
from torch import Tensor


def clipped_surrogate(new_B: Tensor, old_B: Tensor, advantages_B: Tensor, low: float, high: float) -> Tensor:
    """PPO's clipped objective as a loss per row (arXiv 1707.06347, eq. 7).

    ``new_B`` and ``old_B`` are log-probabilities (nats); the ratio is kept in [1 - low, 1 + high].

    >>> clipped_surrogate(torch.tensor([0.5]), torch.tensor([0.0]), torch.tensor([1.0]), 0.2, 0.2)
    tensor([-1.2000])
    """
    ratio_B = (new_B - old_B).exp()
    return -torch.minimum(ratio_B * advantages_B, ratio_B.clamp(1 - low, 1 + high) * advantages_B)


def k3_kl(new_B: Tensor, reference_B: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(new || reference) per row: exp(r) - r - 1, r = reference - new.

    >>> k3_kl(torch.tensor([-1.0]), torch.tensor([-1.0]))
    tensor([0.])
    """
    log_ratio_B = reference_B - new_B
    return log_ratio_B.exp() - log_ratio_B - 1


def step_weights(steps_per_episode: list[int], aggregation: str) -> Tensor:
    """Weight of every step's loss, episodes laid end to end; the weighted sum is the batch loss.

    ``grpo``: mean over an episode's steps, then over the episodes that have any; ``bnpo``: mean over
    all steps; ``dr_grpo``: sum over (episodes times the longest episode).

    >>> step_weights([1, 2], "grpo")
    tensor([0.5000, 0.2500, 0.2500])
    """
    lengths_E = torch.tensor([count for count in steps_per_episode if count > 0])
    if aggregation == "grpo":
        per_episode_E = 1.0 / (lengths_E * len(lengths_E))
    elif aggregation == "bnpo":
        per_episode_E = torch.full((len(lengths_E),), 1.0 / int(lengths_E.sum()))
    else:
        per_episode_E = torch.full((len(lengths_E),), 1.0 / (len(lengths_E) * int(lengths_E.max())))
    return per_episode_E.repeat_interleave(lengths_E)
