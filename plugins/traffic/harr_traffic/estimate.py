"""Off-policy estimates, with 95 % intervals: what a policy would have earned, from rows chosen by another one.

Inverse propensity (Horvitz and Thompson 1952), self-normalised (Swaminathan and Joachims 2015), doubly robust (Dudik,
Langford and Li, arXiv 1103.4601). Intervals come from the influence of each group of rows, since the searches of one
question are not independent.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harr.errors import CorpusError

Array = NDArray[np.float64]
Z = 1.959964
LEAST_GROUPS = 50
"""Number of groups below which a normal interval says too little."""
LEAST_SHARE = 0.05
"""Effective share of the rows below which a few of them dominate."""
MOST_APART = 0.05
"""Share of rows whose kept first ranks the policy would fill otherwise, above which no estimate is given."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean score and its gain over what was served, each with a 95 % interval."""

    mean: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float


def effective(weights_B: Array) -> float:
    """Return the effective number of rows: (sum of weights)^2 / sum of squares (Kish 1965).

    >>> effective(np.ones(10)), round(effective(np.array([9.0] + [0.0] * 9)), 1)
    (10.0, 1.0)
    """
    squares = float((weights_B**2).sum())
    return float(weights_B.sum()) ** 2 / squares if squares else 0.0


def check_support(weights_B: Array, groups_B: NDArray[np.int64]) -> None:
    """Refuse rows that say too little about the policy.

    Raises:
        CorpusError: there are too few groups, a few rows dominate, or the policy would choose what was never drawn:
            then the mean weight, which is 1 where both choose among the same, is not.
    """
    found, rows = effective(weights_B), len(weights_B)
    if (groups := len(np.unique(groups_B))) < LEAST_GROUPS:
        raise CorpusError(
            f"{groups} questions were explored and have outcomes, and at least {LEAST_GROUPS} are needed; explore more "
            "(explore of harr_traffic.recorder:Recorder), or wait"
        )
    if found < LEAST_SHARE * rows or found < LEAST_GROUPS:
        raise CorpusError(
            f"the log says too little of this model: {rows} rows count as {found:.0f}, since it would choose otherwise "
            "in most; explore more, or evaluate it by playing (harr evaluate)"
        )
    mean, error = float(weights_B.mean()), _spread(weights_B - weights_B.mean(), groups_B)
    if abs(mean - 1.0) > 4.0 * error + 0.01:
        raise CorpusError(
            f"the log does not hold what this model would choose: its mean weight is {mean:.2f}, not 1 within "
            f"{4 * error:.2f}; evaluate it by playing (harr evaluate)"
        )


def check_kept(same_B: NDArray[np.bool_]) -> None:
    """Check how many rows have kept first ranks that differ from the policy's: it never makes such a choice.

    Which rows those are does not depend on what was drawn, so the other rows can be used without them.

    Raises:
        CorpusError: there are too many.
    """
    if (apart := 1.0 - float(same_B.mean())) > MOST_APART:
        raise CorpusError(
            f"in {100 * apart:.1f} % of the explored searches this model has other first passages than those that were "
            "kept (explore_after), and the log does not say what these earn; explore all ranks, or "
            "evaluate it by playing (harr evaluate)"
        )


def apart_line(count: int) -> str:
    """Return the line of a table about the rows that :func:`check_kept` accepts and that are left out."""
    return f"left out: {count:,} explored searches whose kept first passages this model would have otherwise"


def estimates(
    weights_B: Array,
    scores_B: Array,
    groups_B: NDArray[np.int64],
    features_BF: Array,
    expected_BF: Array,
) -> dict[str, Estimate]:
    """Return ``ips``, ``snips`` and ``dr``: what a policy would have earned.

    Args:
        weights_B: probability of the logged choice under the policy, divided by that when it was drawn.
        scores_B: what the choice earned.
        groups_B: rows with the same number are not independent.
        features_BF: features of the logged choice, from which ``dr`` predicts the score.
        expected_BF: their mean over the choices that the policy would draw.

    >>> rng = np.random.default_rng(0)
    >>> right = rng.random(400) < 0.5  # drawn evenly from two choices, of which the right one earns 1
    >>> found = estimates(2.0 * right, 1.0 * right, np.arange(400), np.zeros((400, 1)), np.zeros((400, 1)))
    >>> found["snips"].mean, round(found["snips"].gain, 1)  # the policy takes the right one
    (1.0, 0.5)
    """
    predicted_B, wished_B = _predicted(weights_B, scores_B, groups_B, features_BF, expected_BF)
    served = scores_B - scores_B.mean()
    normalised = float(weights_B @ scores_B / weights_B.sum())
    parts = {
        "ips": (weights_B * scores_B, float((weights_B * scores_B).mean())),
        "snips": (normalised + weights_B * (scores_B - normalised) / weights_B.mean(), normalised),
        "dr": (
            wished_B + weights_B * (scores_B - predicted_B),
            float((wished_B + weights_B * (scores_B - predicted_B)).mean()),
        ),
    }
    found = {}
    for name, (row_B, mean) in parts.items():
        influence_B = row_B - mean
        own, gain = Z * _spread(influence_B, groups_B), mean - float(scores_B.mean())
        both = Z * _spread(influence_B - served, groups_B)
        found[name] = Estimate(mean, mean - own, mean + own, gain, gain - both, gain + both)
    return found


def interval(scores_B: Array, groups_B: NDArray[np.int64]) -> tuple[float, float, float]:
    """Return the mean of what was served and its 95 % interval."""
    mean = float(scores_B.mean())
    half = Z * _spread(scores_B - mean, groups_B)
    return mean, mean - half, mean + half


def _spread(influence_B: Array, groups_B: NDArray[np.int64]) -> float:
    """Return the standard error of a mean from the influence of its rows, summed within groups."""
    _, group_B = np.unique(groups_B, return_inverse=True)
    sums = np.bincount(group_B, weights=influence_B)
    count = len(sums)
    return float(np.sqrt((sums**2).sum() * count / max(1, count - 1)) / len(influence_B))


def _predicted(
    weights_B: Array, scores_B: Array, groups_B: NDArray[np.int64], features_BF: Array, expected_BF: Array
) -> tuple[Array, Array]:
    """Return the predicted score of each logged choice, and the mean prediction for those the policy would draw.

    A linear model, weighted as the policy would see the rows; each half of the groups is predicted from the other.
    """
    predicted_B, wished_B = np.zeros_like(scores_B), np.zeros_like(scores_B)
    logged_BF, drawn_BF = (np.column_stack([np.ones(len(scores_B)), own]) for own in (features_BF, expected_BF))
    half_B = np.unique(groups_B, return_inverse=True)[1] % 2 == 0
    for own_B in (half_B, ~half_B):
        root_B = np.sqrt(weights_B[~own_B])
        left, right = logged_BF[~own_B] * root_B[:, None], scores_B[~own_B] * root_B
        theta_F = np.linalg.solve(left.T @ left + 1e-3 * np.eye(left.shape[1]), left.T @ right)
        predicted_B[own_B], wished_B[own_B] = logged_BF[own_B] @ theta_F, drawn_BF[own_B] @ theta_F
    return predicted_B, wished_B
