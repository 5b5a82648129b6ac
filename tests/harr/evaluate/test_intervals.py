"""Intervals and p values, against exact results and by simulated coverage."""

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from harr.evaluate.intervals import Array, mean_interval, resample


def alone(questions: int) -> list[tuple[str, ...]]:
    """Return the gold of questions that share nothing."""
    return [()] * questions


def judged(sample: object, golds: Sequence[tuple[str, ...]], resamples: int = 9999) -> tuple[float, float, float]:
    """Return low, high and p of one sample."""
    draws = resample([sample], golds, resamples=resamples, seed=1)  # type: ignore[list-item]
    return (*draws.interval()[0], draws.p()[0])


def test_interval_of_a_share_is_the_binomial_one() -> None:
    values = [1.0] * 120 + [0.0] * 280  # resampled successes are Binomial(400, .3)
    found = mean_interval(values, resamples=10_000, seed=1)
    assert found["mean"] == pytest.approx(0.3) and found["n"] == 400
    assert (found["low"], found["high"]) == pytest.approx(stats.binom(400, 0.3).ppf([0.025, 0.975]) / 400, abs=0.004)
    one, same, other = (mean_interval(values, resamples=500, seed=seed) for seed in (1, 1, 2))
    assert one == same and one["low"] != other["low"]
    for value in (0.25, 0.1, -1 / 3):
        found = mean_interval([value] * 12, resamples=100, seed=0)
        assert found["low"] == found["high"] == pytest.approx(found["mean"]) == pytest.approx(value)


def test_p_of_a_gain_is_close_to_the_sign_test() -> None:
    up, down = 57, 43  # of 100 questions that differ; 100 more do not
    low, high, p = judged([[1.0] * up + [-1.0] * down + [0.0] * 100], alone(200))
    assert p == pytest.approx(stats.binomtest(up, up + down).pvalue, abs=0.04)  # .19
    assert low < 0 < high
    assert judged([[1.0, -1.0] * 20], alone(40))[2] > 0.9
    assert judged([[0.0] * 20], alone(20)) == (0.0, 0.0, 1.0)
    assert judged([[0.8]], alone(1))[2] > 0.5, "one question proves nothing"
    low, _, p = judged([[1.0] * 150 + [0.0] * 50], alone(200), resamples=999)
    assert p == pytest.approx(2 / 1000) and low > 0.6, "the smallest that the resamples allow"


def test_an_interval_leaves_out_0_where_and_only_where_p_is_below_5_percent() -> None:
    rng = np.random.default_rng(2)
    samples = [rng.normal(shift, 1.0, (runs, 40)) for shift in np.linspace(0, 0.9, 12) for runs in (1, 3)]
    draws = resample(samples, alone(40), resamples=4999, seed=3)
    apart = [low > 0 or high < 0 for low, high in draws.interval()]
    assert apart == [p <= 0.05 for p in draws.p()] and 5 < sum(apart) < 20
    together = draws.family()
    assert [low > 0 or high < 0 for low, high, _ in together] == [p <= 0.05 for *_, p in together]
    assert all(adjusted >= p for (*_, adjusted), p in zip(together, draws.p(), strict=True))
    assert 0 < sum(p <= 0.05 for *_, p in together) < sum(apart)


def test_a_family_of_one_is_not_adjusted() -> None:
    draws = resample([np.random.default_rng(0).normal(0.3, 1, (1, 60))], alone(60), resamples=9999, seed=0)
    (low, high, p), (single, p_single) = draws.family()[0], (draws.interval()[0], draws.p()[0])
    assert (low, high) == single and p == pytest.approx(p_single, abs=2e-4)


def test_a_run_is_students_t_where_only_runs_differ() -> None:
    means = np.asarray([0.985, 0.998, 0.960])
    low, high, p = judged(np.repeat(means[:, None] - 0.95, 30, axis=1), alone(30), resamples=40_000)
    exact = stats.ttest_1samp(means, 0.95)
    span = exact.confidence_interval(0.95)
    assert p == pytest.approx(exact.pvalue, abs=0.01)  # .107
    assert (low, high) == pytest.approx((span.low - 0.95, span.high - 0.95), abs=0.005)


def test_questions_with_the_same_gold_count_once() -> None:
    """Forty questions, each asked ten times about the same passage, have the interval of forty."""
    values = np.random.default_rng(0).integers(0, 2, 40).astype(float)
    gold = [(f"p{number}", f"r{number}") for number in range(40)]
    once = judged([values], gold)
    tenfold = judged([np.repeat(values, 10)], [own for own in gold for _ in range(10)])
    apart = judged([np.repeat(values, 10)], alone(400))
    assert tenfold[:2] == pytest.approx(once[:2], abs=0.02)
    assert apart[1] - apart[0] == pytest.approx((once[1] - once[0]) / np.sqrt(10), rel=0.1)


def test_one_shared_passage_of_three_counts_by_a_third() -> None:
    """Two questions that share one of three passages: their counts correlate by the Jaccard overlap, 1 / 3."""
    draws = resample([[[3.0, np.nan]], [[np.nan, 3.0]]], [("a", "b"), ("b", "c")], resamples=40_000, seed=0)
    seen = (draws.values > 0).mean(axis=0)  # drawn at least once
    assert seen == pytest.approx([1 - np.exp(-1)] * 2, abs=0.01)
    both = resample([[[3.0, 3.0]]], [("a", "b"), ("b", "c")], resamples=40_000, seed=0)
    none = (both.values == 0).mean()
    assert none == pytest.approx(np.exp(-1) / 3 + np.exp(-2) * 2 / 3, abs=0.01)


def differences(rng: np.random.Generator, repeats: int, runs: int, questions: int, group: int) -> list[Array]:
    """Return gains of one trained arm over another, with no true gain, from right and wrong answers.

    A run's training moves all its questions (sd 1.8 points), most questions are equally hard for both arms, and
    ``group`` questions in a row rest on the same passage, which is easier for one of the arms.
    """
    samples = []
    for _ in range(repeats):
        hard = rng.random(questions)
        gap = np.repeat(rng.normal(0, 0.05, questions // group), group)
        arms = [hard < 0.9 + sign * gap + rng.normal(0, 0.018, (runs, 1)) for sign in (0.5, -0.5)]
        samples.append(arms[0].astype(float) - arms[1])
    return samples


@pytest.mark.parametrize(("runs", "group"), [(3, 1), (3, 4), (5, 1), (1, 4)])
def test_the_interval_covers_what_it_says(runs: int, group: int) -> None:
    """Nominal 95 %: at least 90 with three runs of sd 1.8 points and 400 questions; over questions alone it was 62."""
    rng = np.random.default_rng(runs + group)
    samples = differences(rng, 1000, runs, 400, group)
    if runs == 1:  # conditional on the run, as there is no other
        samples = [rng.normal(0, 1, (1, 100)).repeat(group, axis=1) for _ in range(600)]
    golds = [(f"p{place // group}",) for place in range(400)]
    inside = [low <= 0 <= high for low, high in resample(samples, golds, resamples=1999, seed=0).interval()]
    assert 0.90 <= np.mean(inside) <= 0.985, np.mean(inside)
    if runs == 1:
        alike = resample(samples, alone(400), resamples=1999, seed=0).interval()
        assert np.mean([low <= 0 <= high for low, high in alike]) < 0.8, "sharing was not seen"


def test_runs_that_differ_much_are_covered_as_well() -> None:
    rng = np.random.default_rng(7)
    samples = [rng.normal(0, 0.1, (3, 1)) + rng.normal(0, 0.4, 400) for _ in range(600)]
    draws = resample(samples, alone(400), resamples=1999, seed=0)
    assert np.mean([low <= 0 <= high for low, high in draws.interval()]) >= 0.90
    by_questions = resample([sample.mean(axis=0) for sample in samples], alone(400), resamples=1999, seed=0)
    assert np.mean([low <= 0 <= high for low, high in by_questions.interval()]) < 0.6, "the runs do not matter here"


def test_a_family_is_wrong_in_one_of_twenty() -> None:
    """Six null gains over the same trained arm, 300 times: at least one is called a gain in about 5 %."""
    rng = np.random.default_rng(5)
    wrong = 0
    for repeat in range(300):
        ours = rng.normal(0, 1, (3, 60)) + rng.normal(0, 0.1, (3, 1))
        draws = resample([ours - rng.normal(0, 1, (1, 60)) for _ in range(6)], alone(60), resamples=499, seed=repeat)
        wrong += min(p for *_, p in draws.family()) <= 0.05
    assert 0.02 <= wrong / 300 <= 0.09


def test_memory_stays_bounded_for_many_questions() -> None:
    values = np.random.default_rng(0).random(100_000).tolist()
    tracemalloc.start()
    mean_interval(values, resamples=400, seed=0)  # at once it would be 100,000 * 400 * 16 bytes = 640 MB
    assert tracemalloc.get_traced_memory()[1] < 250_000_000
    tracemalloc.stop()
