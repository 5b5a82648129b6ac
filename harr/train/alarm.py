"""A leading alarm: figures of a training run that leave their usual range, often before the reward falls.

The baseline are the run's own first steps: their median, and their median absolute deviation. From then on each figure
has a cumulative sum (CUSUM; Page, Biometrika 41, 1954) of its excess. The alarm stops nothing; :mod:`harr.train.guard`
does, once the reward has fallen.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from harr.train.guard import select_comparable

FIRST = 8
"""Number of steps of the baseline."""
SLACK, CAP, LIMIT = 1.0, 4.0, 6.0
"""In deviations: tolerance of a step, maximum count of a step, and the sum that raises the alarm."""
WATCHED = {
    "entropy": (1, 0.15, 0.05),
    "grad_norm": (1, 0.5, 0.05),
    "logprob_gap": (1, 0.15, 0.02),
    "malformed": (1, 0.15, 1.0),
    "invalid_share": (1, 0.15, 0.02),
    "episodes_without_search": (1, 0.15, 1.0),
    "think_words": (-1, 0.15, 1.0),
}
"""Figure -> the sign of its bad direction, and its minimum deviation, as a share of the median and as a number.

Figures that also move in healthy runs are not watched: the KL and the share of groups that agree rise with success,
entropy falls with certainty. The norm of the gradient doubles in some of them, so a deviation of it is at least half.
"""


def alarm_figures(history: Sequence[Mapping[str, Any]], *, say: bool = False) -> dict[str, float]:
    """Return ``alarm`` of the last step: 1.0 once a step has raised it, else 0.0.

    Only steps that are comparable with the last one count. ``say``: print one line in the step that raises it.
    """
    rows = select_comparable(history)
    was_raised = bool(rows) and any(row.get("alarm", 0.0) for row in rows)
    raised = [] if was_raised else [name for name in WATCHED if _cumulative_sum(rows, name) >= LIMIT]
    if raised and say:
        print(f"alarm at step {len(history)}: {'; '.join(_line(rows, name) for name in raised)}; training goes on")
    return {"alarm": float(was_raised or bool(raised))}


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(row[name]) for row in rows if name in row]


def _measure_baseline(values: Sequence[float], share: float, least: float) -> tuple[float, float]:
    """Return median and deviation of a figure's first steps.

    >>> _measure_baseline([1.0, 1.0, 1.2, 0.9, 5.0], 0.15, 0.05)
    (1.0, 0.15)
    """
    middle = median(values)
    return middle, max(1.4826 * median(abs(value - middle) for value in values), share * abs(middle), least)


def _cumulative_sum(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the cumulative sum of a figure after the last step, in deviations."""
    sign, *least = WATCHED[name]
    values, total = _values(rows, name), 0.0
    if len(values) > FIRST:
        middle, spread = _measure_baseline(values[:FIRST], *least)
        for value in values[FIRST:]:
            total = max(0.0, total + min(sign * (value - middle) / spread, CAP) - SLACK)
    return total


def _line(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    values = _values(rows, name)
    return f"{name} is {values[-1]:.3g}, in the first {FIRST} steps it was {median(values[:FIRST]):.3g}"
