"""Means and gains with 95 % intervals and p values, by one bootstrap over questions and training runs.

A sample is a table of values, runs x questions: an arm's metric, or the difference between two arms in it. Arms
trained with the same seeds are subtracted run by run, since a seed gives both the same order of questions and the same
initial weights. A sample's mean has two sources of error, its questions and its runs:

1. *Questions* are drawn with replacement, jointly for all samples: each counts Poisson(1) times (Hanley and MacGibbon
   2006). Questions that share gold passages have correlated errors: in every draw the passages are put in a random
   order, and a question counts as often as the first of its own. So two questions count alike with a probability equal
   to the Jaccard overlap of their gold (minwise hashing, Broder 1997): always if the gold is the same, never if none
   is shared. Connected components would not do: in the fictional world one of them has 336 of 400 questions.
2. *Runs* are drawn as in rliable (Agarwal et al. 2021, arXiv 2108.13264), as wholes, since all values of a run
   share its training. But draws of S runs with replacement have (S - 1) / S of the right variance, and three runs allow
   only ten distinct draws. So every run's deviation from the mean is multiplied by a normal number and divided by
   sqrt(S (S - 1)): the variance is that of the mean of S runs, whatever S.
3. The variance of S runs is itself estimated. So every draw is moved outwards, from a quantile of the normal
   distribution, in standard errors, to the same quantile of Student's t. The degrees of freedom follow Welch and
   Satterthwaite (1946): S - 1 if only runs vary, infinitely many if only questions do.

The interval's limits are percentiles of the draws; p is twice the share of draws beyond 0. So p is below .05 if and
only if the interval excludes 0. A family of gains is judged by its smallest p (min-P of Westfall and Young 1993,
single step): its intervals hold simultaneously with 95 %, and p is adjusted for their number. Both account for
the gains' correlation.
"""

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, factorial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Array = NDArray[np.float64]

LEVEL = 0.95
_BATCH_VALUES = 4_000_000
"""Number of drawn values in memory at once: limits memory to some tens of MB for any number of questions."""
_TIMES = np.searchsorted(
    np.cumsum([exp(-1) / factorial(times) for times in range(12)]), (np.arange(65_536) + 0.5) / 65_536
).astype(np.float64)
"""How often a question counts, by 16 random bits: quantiles of Poisson(1), fifty times as fast as scipy's."""
_ERRORS = np.linspace(0.05, 5.0, 100)
"""Distances from the mean, in standard errors, at which the normal distribution is compared with Student's t."""
_DECIMALS = 12
"""Draws are rounded to this many decimals, so that a draw without gain is exactly 0."""


@dataclass(frozen=True)
class Draws:
    """Resampled means of several samples."""

    means: Array
    """The mean of every sample."""
    values: Array
    """The resampled means, draws x samples."""

    def of(self, samples: Sequence[int]) -> "Draws":
        """Return the draws of some of the samples."""
        return Draws(self.means[samples], self.values[:, samples])

    def interval(self, cut: int = 0) -> list[tuple[float, float]]:
        """Return every mean's 95 % interval, or the one that leaves out ``cut`` - 1 draws at either end."""
        ordered, count = np.sort(self.values, axis=0), len(self.values)
        place = max(1, cut or int((1 - LEVEL) / 2 * (count + 1)))
        return list(zip(ordered[place - 1].tolist(), ordered[count - place].tolist(), strict=True))

    def p(self) -> list[float]:
        """Return the two-sided p value of every mean against 0."""
        return [min(1.0, 2 * beyond / (len(self.values) + 1)) for beyond in self._beyond()]

    def family(self) -> list[tuple[float, float, float]]:
        """Return every mean's low, high and p, which hold simultaneously."""
        count, least = len(self.values), np.full(len(self.values), len(self.values))
        for column in self.values.T:  # how many draws are as extreme as each, in the sample where it is most extreme
            ordered = np.sort(column)
            up_to, before = (np.searchsorted(ordered, column, side=side) for side in ("right", "left"))
            least = np.minimum(least, np.minimum(up_to, count - before))
        least.sort()
        p = [min(1.0, least.searchsorted(beyond, side="right") / (count + 1)) for beyond in self._beyond()]
        cut = int(least[int((1 - LEVEL) * (count + 1))]) - 1
        return [(low, high, value) for (low, high), value in zip(self.interval(max(1, cut)), p, strict=True)]

    def _beyond(self) -> list[int]:
        """Return for every mean 1 plus the number of draws on the other side of 0, or on it."""
        lower, upper = (self.values <= 0).sum(axis=0), (self.values >= 0).sum(axis=0)
        return (1 + np.minimum(lower, upper)).tolist()


def resample(
    samples: Sequence[ArrayLike], golds: Sequence[Collection[Hashable]], *, resamples: int, seed: int
) -> Draws:
    """Return draws of several samples' means over the same questions.

    Args:
        samples: each runs x questions; a question with a NaN counts in no run. Every sample has at least one question
            without NaN.
        golds: every question's gold passages; may be empty.
        resamples: number of draws, B.
        seed: seed of the random numbers.

    With two runs whose questions all agree: Student's t with one degree of freedom, 12.7 standard errors.

    >>> draws = resample([[[0.4] * 9, [0.6] * 9]], [()] * 9, resamples=9999, seed=0)
    >>> [round(abs(limit - 0.5) / 0.1) in range(11, 16) for limit in draws.interval()[0]]
    [True, True]
    """
    rng = np.random.default_rng(seed)
    tables = [np.atleast_2d(np.asarray(sample, dtype=np.float64)) for sample in samples]
    values = np.stack([table.mean(axis=0) for table in tables], axis=1)
    present = ~np.isnan(values)
    means = np.nansum(values, axis=0) / present.sum(axis=0)
    draws = np.zeros((resamples, len(tables)))
    for start, weights in _weights(golds, resamples, rng):
        block = draws[start : start + len(weights)]
        counted = weights @ present
        np.divide(weights @ np.where(present, values, 0.0), counted, out=block, where=counted > 0)
    for runs in sorted({len(table) for table in tables} - {1}):
        group = [column for column, table in enumerate(tables) if len(table) == runs]
        run_means = np.stack([tables[column][:, present[:, column]].mean(axis=1) for column in group], axis=1)
        draws[:, group] = means[group] + _with_runs(draws[:, group] - means[group], run_means - means[group], rng)
    return Draws(means, np.round(draws, _DECIMALS))


def _weights(
    golds: Sequence[Collection[Hashable]], resamples: int, rng: np.random.Generator
) -> Iterator[tuple[int, Array]]:
    """Yield batches of draws: the first one's number, and how often each question counts, draws x questions."""
    numbers: dict[Hashable, int] = {}
    gold_sets = [tuple(gold) or (place,) for place, gold in enumerate(golds)]
    passages = np.asarray([numbers.setdefault(name, len(numbers)) for gold in gold_sets for name in gold])
    starts = np.cumsum([0, *(len(gold) for gold in gold_sets[:-1])])
    step = max(1, _BATCH_VALUES // len(passages))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        order = rng.integers(2**32, size=(rows, len(numbers)), dtype=np.uint32)
        first = np.minimum.reduceat(order[:, passages], starts, axis=1)
        yield start, _TIMES[first & 0xFFFF]


def _with_runs(moved: Array, deviations: Array, rng: np.random.Generator) -> Array:
    """Return the draws' deviations by questions (draws x samples) plus those by runs (``deviations``: runs x samples),
    with the tails of Student's t."""
    runs = len(deviations)
    shift = rng.standard_normal((len(moved), runs)) @ deviations / np.sqrt(runs * (runs - 1))
    by_questions, by_runs = moved.var(axis=0), (deviations**2).sum(axis=0) / (runs * (runs - 1))
    spread, moved = np.sqrt(by_questions + by_runs), moved + shift
    for column in np.flatnonzero(by_runs):
        freedom = (runs - 1) * (spread[column] ** 2 / by_runs[column]) ** 2
        farther = stats.t.isf(stats.norm.sf(_ERRORS), freedom) / _ERRORS
        moved[:, column] *= np.interp(np.abs(moved[:, column]) / spread[column], _ERRORS, farther)
    return moved


def mean_interval(values: Sequence[float], *, resamples: int, seed: int) -> dict[str, Any]:
    """Return ``{mean, low, high, n}`` of one or more values, of questions without shared gold.

    >>> mean_interval([1.0] * 12, resamples=99, seed=0)
    {'mean': 1.0, 'low': 1.0, 'high': 1.0, 'n': 12}
    """
    draws = resample([values], [()] * len(values), resamples=resamples, seed=seed)
    low, high = draws.interval()[0]
    return {"mean": float(draws.means[0]), "low": low, "high": high, "n": len(values)}
