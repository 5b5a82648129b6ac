"""The leading alarm: raised once, by a figure that leaves the range of the first steps; nothing is stopped."""

import random
from typing import Any

import pytest

from harr.train.alarm import FIRST, WATCHED, alarm_figures


def told(rows: list[dict[str, Any]]) -> list[int]:
    """Rows with the figures of the alarm; returns the numbers of the steps in which it was on."""
    seen: list[dict[str, Any]] = []
    for row in rows:
        seen.append(dict(row))
        seen[-1] |= alarm_figures(seen, say=True)
    return [n for n, row in enumerate(seen, 1) if row["alarm"]]


def healthy(count: int, seed: int = 0, **more: float) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [{"reward_mean": 0.5, "entropy": 1.0 + draw.gauss(0, 0.1), "grad_norm": 1.0, **more} for _ in range(count)]


def test_noise_raises_nothing() -> None:
    assert not any(told(healthy(60, seed)) for seed in range(20))
    assert not told([{"reward_mean": 0.1}] * 30), "without the figures there is nothing to watch"


@pytest.mark.fault(12)
@pytest.mark.parametrize("name", WATCHED)
def test_a_figure_that_goes_wrong_raises_the_alarm_once(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    usual, wrong = (30.0, 2.0) if WATCHED[name][0] < 0 else (1.0, 20.0)
    rows = [*healthy(20, **{name: usual}), *healthy(10, **{name: wrong})]
    assert told(rows) == list(range(22, 31)), "two steps far off are enough, and it stays on"
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"alarm at step 22: {name} is {wrong:.3g}, in the first 8 steps it was ")
    assert lines[0].endswith("; training goes on")
    assert not told([*healthy(20, **{name: wrong}), *healthy(10, **{name: usual})]), "the other way is no alarm"


def test_other_rewards_have_first_steps_of_their_own() -> None:
    """A later phase, of other rewards or questions, is not compared with the one before."""
    rows = [*healthy(20, phase=0.0, malformed=0.0), *healthy(20, phase=1.0, malformed=30.0)]
    assert not told(rows)
    assert told([*rows, *healthy(4, phase=1.0, malformed=90.0)]) == [42, 43, 44]
    assert not told([*healthy(FIRST - 1), *healthy(1, malformed=50.0)]), "the first steps say what is usual"
