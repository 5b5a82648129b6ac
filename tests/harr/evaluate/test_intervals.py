"""Intervals against exact results that can be worked out without resampling."""

import resource
import sys

import numpy as np
import pytest
from scipy import stats

from harr.evaluate.intervals import mean_interval, paired_gain


def test_interval_of_a_share_is_the_binomial_one() -> None:
    values = [1.0] * 120 + [0.0] * 280  # resampled successes are Binomial(400, .3)
    found = mean_interval(values, resamples=10_000, seed=1)
    assert found["mean"] == pytest.approx(0.3) and found["n"] == 400
    low, high = stats.binom(400, 0.3).ppf([0.025, 0.975]) / 400
    assert found["low"] == pytest.approx(low, abs=0.003)
    assert found["high"] == pytest.approx(high, abs=0.003)


def test_same_seed_same_interval_other_seed_other_interval() -> None:
    values = np.random.default_rng(0).random(50)
    one, same, other = (mean_interval(values, resamples=500, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one["low"] != other["low"]


@pytest.mark.parametrize("values", [[0.25], [0.25, 0.25, 0.25], [0.1] * 7])
def test_constant_values_have_an_interval_without_width(values: list[float]) -> None:
    found = mean_interval(values, resamples=100, seed=0)
    assert found["low"] == found["high"] == found["mean"] == pytest.approx(values[0])


@pytest.mark.parametrize(
    ("ours", "theirs", "gain", "p"),
    [
        ([1, 1, 1, 0], [0, 0, 0, 0], 0.75, 2 / 8),  # three differences, all up: 2 of 2 ** 3 sign patterns
        ([1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1], 4 / 6, 14 / 64),  # at least 5 of 6 one way: (1 + 6) * 2 patterns
        ([1, 0], [0, 1], 0.0, 1.0),
        ([0.3, 0.7], [0.3, 0.7], 0.0, 1.0),  # no difference at all
        ([0.9], [0.1], 0.8, 1.0),  # one pair proves nothing
    ],
)
def test_exact_sign_flip_p(ours: list[float], theirs: list[float], gain: float, p: float) -> None:
    found = paired_gain(ours, theirs, resamples=1000, seed=0)
    assert found["gain"] == pytest.approx(gain)
    assert found["p"] == pytest.approx(p)
    assert found["n"] == len(ours)
    assert found["low"] <= found["gain"] <= found["high"]


def test_sampled_p_agrees_with_the_binomial_sign_test() -> None:
    ours = [1.0] * 57 + [0.0] * 43 + [1.0] * 100  # of 100 differing pairs 57 go up
    theirs = [0.0] * 57 + [1.0] * 43 + [1.0] * 100
    found = paired_gain(ours, theirs, resamples=10_000, seed=3)
    assert found["p"] == pytest.approx(stats.binomtest(57, 100).pvalue, abs=0.015)  # .193
    assert found["low"] < 0 < found["high"]


def test_a_clear_gain_has_the_smallest_p_the_resamples_allow() -> None:
    found = paired_gain([1.0] * 200, [0.0] * 150 + [1.0] * 50, resamples=999, seed=0)
    assert found["p"] == pytest.approx(2 / 1000)
    assert found["low"] > 0.6


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_memory_stays_bounded_for_many_questions() -> None:
    values = np.random.default_rng(0).random(100_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mean_interval(values, resamples=400, seed=0)  # all at once would be 100,000 * 400 * 16 bytes = 640 MB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250_000
