"""Guard a training run: choose the best checkpoint, and stop a run that has collapsed or learns nothing."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harr.params.loop import LoopParams
from harr.params.train_facts import ValidatedParams
from harr.rag.validation import best_point, leading_metric, points

SKIPS = 3
"""Number of consecutive updates with a non-finite gradient that end a run."""


WATCHED = {
    "reward_mean": "mean reward",
    "reward_format_mean": "the reward term format",
    "reward_format_strict_mean": "the reward term format_strict",
}
"""Figures whose fall ends a run. A model's turns may become ill-formed long before its total reward falls."""


def smooth(rewards: Sequence[float], window: int) -> list[float]:
    """Return the mean of each reward and up to ``window`` - 1 before it.

    >>> smooth([0.0, 1.0, 1.0], 2)
    [0.0, 0.5, 1.0]
    """
    return [math.fsum(rewards[max(0, i - window + 1) : i + 1]) / min(i + 1, window) for i in range(len(rewards))]


def select_comparable(history: Sequence[Mapping[str, float]]) -> Sequence[Mapping[str, float]]:
    """Return the steps of the last phase, whose rewards are comparable.

    >>> select_comparable([{"phase": 0.0}, {"phase": 1.0}, {"phase": 1.0}])
    [{'phase': 1.0}, {'phase': 1.0}]
    """
    phase = history[-1].get("phase", 0.0) if history else 0.0
    return [row for row in history if row.get("phase", 0.0) == phase]


def best_step(history: Sequence[Mapping[str, float]], window: int, saved: Iterable[int]) -> int:
    """Return the step of the checkpoint with the highest smoothed reward, the latest of equals.

    ``saved``: the steps of existing checkpoints; the last step counts as saved.

    >>> rows = [{"reward_mean": reward} for reward in (0.0, 0.8, 0.9, 0.1)]
    >>> best_step(rows, 1, [2]), best_step(rows, 1, [1, 3])
    (2, 3)
    """
    rows = select_comparable(history)
    means, offset = smooth([row["reward_mean"] for row in rows], window), len(history) - len(rows)
    steps = {step for step in (*saved, len(history)) if offset < step <= len(history)}
    return max(steps, key=lambda step: (means[step - offset - 1], step), default=0)


def find_best_checkpoint(params: LoopParams, history: Sequence[Mapping[str, Any]], saved: Iterable[int]) -> int:
    """Return the step of the best checkpoint: by validation (``keep: best``), else by reward."""
    point = best_point(history) if params.validation.keep == "best" else {}
    return int(point["step"]) if point else best_step(history, params.checkpoints.window, saved)


def choose_point(params: ValidatedParams, history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the validation point of the weights to export; {} if validation does not choose them.

    Prints a comparison with the last point and the one before training.
    """
    if params.validation.keep == "last" or not (best := best_point(history)):
        return {}
    metric, all_points = leading_metric(best), points(history)
    others = ", ".join(f"{point[metric]:.3f} after step {point['step']}" for point in (all_points[0], all_points[-1]))
    print(f"keeping the weights after step {best['step']}: validation {metric} {best[metric]:.3f} ({others})")
    return best


def find_stop_reason(history: Sequence[Mapping[str, float]], window: int, drop: float) -> str:
    """Return why a run must stop; "" while it may continue.

    For methods that compare a group's rollouts, ``without_advantage`` marks a step without any difference. Only
    comparable steps (:func:`select_comparable`) count.

    >>> rows = [{"reward_mean": reward} for reward in (0.8, 0.8, 0.1, 0.1)]
    >>> find_stop_reason(rows, 2, 0.5)
    'mean reward of the last 2 steps fell to 0.100, under 50 % of its best 0.800'
    >>> find_stop_reason([row | {"reward_format_mean": row["reward_mean"], "reward_mean": 1.0} for row in rows], 2, 0.5)
    'the reward term format of the last 2 steps fell to 0.100, under 50 % of its best 0.800'
    >>> find_stop_reason(rows[:3], 2, 0.5) or find_stop_reason([*rows, {"reward_mean": -1.0}], 2, 0.0)
    ''
    >>> find_stop_reason([{"reward_mean": 1.0, "without_advantage": 1.0}] * 2, 2, 0.5).partition(",")[0]
    "no group's rewards differed in the last 2 steps"
    """
    if len(history) >= SKIPS and all(row.get("skipped_updates", 0.0) for row in history[-SKIPS:]):
        return f"the gradient was not finite in {SKIPS} steps in a row; lower train.optimizer.learning_rate"
    rows = select_comparable(history)
    if len(rows) >= window and all(row.get("without_advantage", 0.0) for row in rows[-window:]):
        return (
            f"no group's rewards differed in the last {window} steps, so nothing is learnt; raise train.group_size or "
            "the temperature of what learns, or use other questions"
        )
    for figure, name in WATCHED.items():
        values = [row[figure] for row in rows if figure in row]
        means = smooth(values, window)[window - 1 :]
        if drop and means and max(means) > 0.0 and means[-1] < drop * max(means):
            return (
                f"{name} of the last {window} steps fell to {means[-1]:.3f}, "
                f"under {drop:.0%} of its best {max(means):.3f}".replace("%", " %")
            )
    return ""
