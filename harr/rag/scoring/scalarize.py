"""Combine a rollout's rewards into one, per group: weighted, uniform, by spread, principal component or norm.

Arrays are (B groups, G rollouts, K terms). NaN: the term does not apply. If it applies to no rollout of a group, the
other terms share its weight; a single NaN counts as its group's mean, which is neutral. A negative weight negates its
term; only ``weighted`` and ``sum`` use the size of a weight.
"""

import numpy as np
from numpy.typing import NDArray

from harr.errors import ParamsError

Array = NDArray[np.float64]


def combine(rewards_BGK: Array, weights_K: Array, scheme: str) -> Array:
    """Return one reward per rollout, shape (B, G).

    ``weighted``: every term is normalised within its group (mean 0; sample deviation 1, + 1e-4), then weighted and
    summed (GDPO, arXiv 2601.05242). ``sum``: the weighted sum of the raw terms. ``uniform``: their mean. ``std``: the
    weights are the standard deviations in the group, scaled to sum 1. ``pca``: see :func:`principal`. ``l2``: the root
    of the sum of squares, for rewards of at least 0.

    >>> rewards = np.array([[[1.0, 0.0], [0.0, 0.5]]])
    >>> weights = np.array([1.0, 1.0])
    >>> [combine(rewards, weights, scheme).round(3).tolist() for scheme in ("sum", "uniform", "std", "l2")]
    [[[1.0, 0.5]], [[0.5, 0.25]], [[0.667, 0.167]], [[1.0, 0.5]]]

    Raises:
        ParamsError: ``l2`` of a negative reward, or of one with a negative weight.
    """
    filled_BGK, applies_BK = _fill_missing(rewards_BGK)
    signs_BK = np.sign(weights_K) * applies_BK
    whole_BK = weights_K * applies_BK
    whole_BK = whole_BK * (np.abs(weights_K).sum() / np.maximum(np.abs(whole_BK).sum(-1, keepdims=True), 1e-12))
    summed_BG = np.einsum("bgk,bk->bg", filled_BGK, whole_BK)
    match scheme:
        case "weighted":
            return np.einsum("bgk,bk->bg", _normalize(filled_BGK), whole_BK)
        case "sum":
            return summed_BG
        case "uniform":
            return np.einsum("bgk,bk->bg", filled_BGK, _shares(signs_BK, np.abs(signs_BK)))
        case "std":
            return np.einsum("bgk,bk->bg", filled_BGK, _shares(signs_BK, filled_BGK.std(1)))
        case "pca":
            return principal(filled_BGK * signs_BK[:, None], summed_BG)
        case "l2":
            signed_BGK = filled_BGK * signs_BK[:, None]
            if (signed_BGK < 0).any():
                raise ParamsError(
                    f"reward.mix l2 takes rewards of at least 0 and positive weights (found {signed_BGK.min():.3g}); "
                    "leave the costs out of reward.terms, or set another mix"
                )
            return np.asarray(np.sqrt(np.square(signed_BGK).sum(-1)))
    raise ValueError(f"unknown scheme {scheme}")


def principal(rewards_BGK: Array, summed_BG: Array) -> Array:
    """Return scores on the first principal component of the standardised terms, shape (B, G), mean 0 in every group.

    The sign of a principal component is arbitrary, and terms that contradict the others load with the opposite sign:
    unchanged, it would reward what the terms punish in up to half of all groups. So its sign is chosen to agree with
    ``summed_BG``, the weighted sum; negative loadings become 0; and a group that still disagrees with that sum gets the
    standardised sum itself.

    >>> twice = np.array([[[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]])  # the same term twice
    >>> principal(twice, twice.sum(-1)).round(3).tolist()
    [[-1.732, 0.0, 1.732]]
    """
    standard_BGK = _standardize(rewards_BGK)
    straight_BG = _standardize(summed_BG)
    correlation_BKK = np.einsum("bgk,bgl->bkl", standard_BGK, standard_BGK) / rewards_BGK.shape[1]
    loadings_BK = np.linalg.eigh(correlation_BKK)[1][..., -1]
    along_B = np.einsum("bgk,bk,bg->b", standard_BGK, loadings_BK, straight_BG)
    along_B = np.where(np.abs(along_B) < 1e-9, loadings_BK.sum(-1), along_B)
    loadings_BK = np.maximum(loadings_BK * np.where(along_B < 0, -1.0, 1.0)[:, None], 0.0)
    loadings_BK = loadings_BK / np.maximum(np.linalg.norm(loadings_BK, axis=-1, keepdims=True), 1e-12)
    scores_BG = np.einsum("bgk,bk->bg", standard_BGK, loadings_BK)
    against_B = (scores_BG * straight_BG).sum(-1) < 0
    return np.where(against_B[:, None], straight_BG, scores_BG)


def consistent(rewards_BGK: Array, weights_K: Array) -> NDArray[np.bool_]:
    """Return which rollouts are at least as good as their group's mean in every term, or at most as good in all.

    >>> rewards = np.array([[[1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    >>> consistent(rewards, np.array([1.0, 1.0])).tolist()
    [[True, True, False, False]]
    """
    filled_BGK, _ = _fill_missing(rewards_BGK)
    above_BGK = (filled_BGK - filled_BGK.mean(1, keepdims=True)) * np.sign(weights_K)
    return np.asarray((above_BGK >= -1e-12).all(-1) | (above_BGK <= 1e-12).all(-1))


def _fill_missing(rewards_BGK: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Replace NaN by means; return the rewards, and which terms apply to each group."""
    valid_BGK = ~np.isnan(rewards_BGK)
    applies_BK = np.asarray(valid_BGK.any(1))
    zeros_BGK = np.where(valid_BGK, rewards_BGK, 0.0)
    means_BK = zeros_BGK.sum(1) / np.maximum(valid_BGK.sum(1), 1)
    return np.where(valid_BGK, rewards_BGK, means_BK[:, None]), applies_BK


def _shares(signs_BK: Array, sizes_BK: Array) -> Array:
    """Return weights of sum 1 in proportion to sizes, or equal ones if all sizes are 0."""
    sizes_BK = sizes_BK * np.abs(signs_BK)
    total_B1 = sizes_BK.sum(-1, keepdims=True)
    equal_BK = np.abs(signs_BK) / np.maximum(np.abs(signs_BK).sum(-1, keepdims=True), 1.0)
    return np.asarray(signs_BK * np.where(total_B1 > 1e-12, sizes_BK / np.maximum(total_B1, 1e-12), equal_BK))


def _normalize(rewards_BGK: Array) -> Array:
    """Return each term with mean 0 and deviation about 1 in its group, like ``group_advantages`` of estimator grpo."""
    centred_BGK = rewards_BGK - rewards_BGK.mean(1, keepdims=True)
    deviation_B1K = np.sqrt(np.square(centred_BGK).sum(1, keepdims=True) / max(1, rewards_BGK.shape[1] - 1))
    return np.asarray(centred_BGK / (deviation_B1K + 1e-4))


def _standardize(rewards: Array) -> Array:
    """Return values with mean 0 and deviation 1 along axis 1; 0 if all are equal."""
    centred = rewards - rewards.mean(1, keepdims=True)
    deviation = rewards.std(1, keepdims=True)
    return np.where(deviation > 1e-9, centred / np.maximum(deviation, 1e-9), 0.0)
