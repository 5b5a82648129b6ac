"""Means and paired gains with 95 % intervals: percentile bootstrap and sign-flip permutation test.

Efron and Tibshirani (1993), chapters 13 and 15; the arithmetic is scipy's.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

LEVEL = 0.95
_BATCH_VALUES = 4_000_000
"""Resampled values held at once: bounds the memory at some tens of MB whatever n."""


def mean_interval(values: Sequence[float], *, resamples: int, seed: int) -> dict[str, float]:
    """Return ``{mean, low, high, n}`` of at least one value; one value, or equal values, give low = mean = high.

    >>> mean_interval([1.0, 1.0, 1.0], resamples=99, seed=0)
    {'mean': 1.0, 'low': 1.0, 'high': 1.0, 'n': 3}
    """
    data = np.asarray(values, dtype=np.float64)
    low, high = _bootstrap(data, resamples, seed)
    return {"mean": float(data.mean()), "low": low, "high": high, "n": len(data)}


def paired_gain(ours: Sequence[float], theirs: Sequence[float], *, resamples: int, seed: int) -> dict[str, float]:
    """Return ``{gain, low, high, p, n}`` of the mean difference ``ours - theirs`` over the same questions.

    ``p`` is two-sided: how often random signs of the differences give a mean as far from 0. Pairs
    without a difference carry no sign, so they are left out of the test (this does not change p).

    >>> paired_gain([1, 1, 1, 0], [0, 0, 0, 0], resamples=999, seed=0)["p"]  # 2 of 2 ** 3 sign patterns
    0.25
    """
    differences = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    low, high = _bootstrap(differences, resamples, seed)
    p = _sign_flip_p(differences[differences != 0.0], resamples, seed)
    return {"gain": float(differences.mean()), "low": low, "high": high, "p": p, "n": len(differences)}


def _bootstrap(data: "np.ndarray[Any, np.dtype[np.float64]]", resamples: int, seed: int) -> tuple[float, float]:
    """Return the percentile interval of the mean."""
    if len(data) < 2 or np.ptp(data) == 0.0:
        return float(data.mean()), float(data.mean())
    interval = stats.bootstrap(
        (data,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, _BATCH_VALUES // len(data)),
        vectorized=True,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def _sign_flip_p(data: "np.ndarray[Any, np.dtype[np.float64]]", resamples: int, seed: int) -> float:
    """Return two-sided p of the mean under random signs; exact where 2 ** n is at most ``resamples``."""
    if len(data) < 2:
        return 1.0
    test = stats.permutation_test(
        (data,),
        np.mean,
        permutation_type="samples",
        n_resamples=resamples,
        batch=max(1, _BATCH_VALUES // (2 * len(data))),
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return float(test.pvalue)
