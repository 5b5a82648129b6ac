"""Losses as pure functions of tensors."""

import torch
from torch import Tensor


def clipped_surrogate(new_B: Tensor, old_B: Tensor, advantages_B: Tensor, low: float, high: float) -> Tensor:
    """Return PPO's clipped objective as a loss per row (arXiv 1707.06347, eq. 7).

    ``new_B`` and ``old_B`` are log-probabilities (nats); the ratio is clipped to [1 - low, 1 + high].

    >>> clipped_surrogate(torch.tensor([0.5]), torch.tensor([0.0]), torch.tensor([1.0]), 0.2, 0.2)
    tensor([-1.2000])
    """
    ratio_B = (new_B - old_B).exp()
    return -torch.minimum(ratio_B * advantages_B, ratio_B.clamp(1 - low, 1 + high) * advantages_B)


def clip_mask(new_B: Tensor, old_B: Tensor, low: float, high: float) -> Tensor:
    """Return which ratios are outside [1 - low, 1 + high].

    >>> clip_mask(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.5, 0.5, 0.5]), 0.2, 0.2)
    tensor([ True, False,  True])
    """
    ratio_B = (new_B - old_B).exp()
    return (ratio_B < 1 - low) | (ratio_B > 1 + high)


def k3_kl(new_B: Tensor, reference_B: Tensor) -> Tensor:
    """Return Schulman's k3 estimate of KL(new || reference) per row: exp(r) - r - 1, r = reference - new.

    >>> k3_kl(torch.tensor([-1.0]), torch.tensor([-1.0]))
    tensor([0.])
    """
    log_ratio_B = reference_B - new_B
    return log_ratio_B.exp() - log_ratio_B - 1


def clipped_value(new_B: Tensor, old_B: Tensor, targets_B: Tensor, clip: float) -> Tensor:
    """Return half the squared error of a value, the larger of unclipped and clipped to ``old`` +- ``clip``.

    >>> clipped_value(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([1.0]), 0.5)
    tensor([0.1250])
    """
    near_B = old_B + (new_B - old_B).clamp(-clip, clip)
    return 0.5 * torch.maximum((new_B - targets_B).square(), (near_B - targets_B).square())


def step_weights(steps_per_episode: list[int], estimator: str) -> Tensor:
    """Return the weight of every step's loss, episodes laid end to end; the weighted sum is the batch loss.

    ``grpo``: mean over an episode's steps, then over the episodes that have any (arXiv 2402.03300);
    ``bnpo``: mean over all steps; ``dr_grpo`` and ``rloo``: sum over steps, mean over all episodes, so
    a step's weight does not depend on its episode's length.

    >>> step_weights([1, 2], "grpo")
    tensor([0.5000, 0.2500, 0.2500])
    >>> step_weights([1, 2, 0, 0], "rloo")
    tensor([0.2500, 0.2500, 0.2500])
    """
    lengths_E = torch.tensor([count for count in steps_per_episode if count > 0])
    if estimator == "grpo":
        per_episode_E = 1.0 / (lengths_E * len(lengths_E))
    elif estimator == "bnpo":
        per_episode_E = torch.full((len(lengths_E),), 1.0 / int(lengths_E.sum()))
    else:
        per_episode_E = torch.full((len(lengths_E),), 1.0 / len(steps_per_episode))
    return per_episode_E.repeat_interleave(lengths_E)
