"""Stage train: build, call, record."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from harr.io.files import write_text
from harr.params import Params
from harr.types import Log
from tasks.common import forget, report_usage
from tasks.paths import ADAPTER, FILTERED, PLACES, PLOTS, STATS, VALIDATION, WORK
from tasks.runtime.stage import main
from tasks.tracking.run import Run

LAST = ("beta", "target_margin_nats", "margin_nats", "held_out_accuracy")
"""Figures of the last step that only runs of leret have."""


def train_policy(params: Params, log: Log) -> tuple[list[dict[str, Any]], str]:
    """Train with the method of params.yaml; return one row per step, and their figure: reward or accuracy."""
    from harr.builders.methods import method_of
    from harr.builders.setup import open_setup

    method = method_of(params.train)
    with open_setup(params, PLACES, FILTERED / "questions.jsonl", validation=VALIDATION) as setup:
        history = method.train(params.train, setup, ADAPTER, WORK / "train", log, params.seed)
        report_usage(log, generator=setup.generator, judge=setup.reward, sources=setup.retriever)
    return history, method.figure


def by_group(log: Log) -> Log:
    """Return a log that groups figures for MLflow as reward, validation and health, and omits those always 0 so far."""
    moved: set[str] = set()

    def say(step: int, values: Mapping[str, float]) -> None:
        moved.update(name for name, value in values.items() if value)
        log(step, {group(name): value for name, value in values.items() if name in moved})

    return say


def group(name: str) -> str:
    """Return the name of a training figure with its group.

    >>> group("reward_mean"), group("validation.recall"), group("loss")
    ('reward/reward_mean', 'validation/recall', 'health/loss')
    """
    if name.startswith("validation."):
        return name.replace(".", "/", 1)
    return f"{'reward' if name.startswith('reward') else 'health'}/{name}"


def summary(history: list[dict[str, Any]], figure: str = "reward") -> dict[str, float]:
    """Return the run in a few figures: rewards of the first and last ten steps, and the time.

    With accuracy as ``figure``, it is that of SFT's tokens and of IPO's pairs, each over its own last ten steps.
    """
    if figure == "accuracy":
        last_of = {"sft": [r for r in history if not r["phase"] % 2], "ipo": [r for r in history if r["phase"] % 2]}
        rewards = {f"{name}_accuracy_last_10": mean_reward(rows[-10:]) for name, rows in last_of.items()}
    else:
        ends = {"first": history[:10], "last": history[-10:]}
        rewards = {f"reward_{name}_10": mean_reward(rows) for name, rows in ends.items()}
    last = {name: history[-1][name] for name in LAST if name in history[-1]}
    figures = {"steps": float(len(history)), **rewards, **last, "seconds": sum(row["seconds"] for row in history)}
    return figures | validation_summary(history)


def validation_summary(history: list[dict[str, Any]]) -> dict[str, float]:
    """Return the first, last and best validation and the best one's step; empty if there was none.

    >>> rows = [{"step": n, "validation": {"recall": recall, "seconds": 1.0}} for n, recall in enumerate((0.6, 0.5))]
    >>> validation_summary(rows)["validation_best_recall"], validation_summary(rows)["validation_best_step"]
    (0.6, 1)
    """
    from harr.rag.validation import best_point, leading_metric, points

    validated = points(history)
    if not validated:
        return {}
    best, metric = best_point(history), leading_metric(validated[-1])
    ends = {"first": validated[0], "last": validated[-1], "best": best}
    figures = {f"validation_{name}_{metric}": point[metric] for name, point in ends.items()}
    seconds = sum(point["seconds"] for point in validated)
    return figures | {"validation_best_step": best["step"], "validation_seconds": seconds}


def mean_reward(rows: list[dict[str, Any]]) -> float:
    """Return the mean reward of some steps, or the mean accuracy of a method that has no rewards.

    >>> mean_reward([{"reward_mean": 0.5}, {"reward_mean": 1.0}])
    0.75
    """
    return float(sum(row["reward_mean"] for row in rows) / len(rows))


def plot_training(history: list[dict[str, Any]], figure: str = "reward") -> list[Path]:
    """Plot the learning curve, and progress and spread of every reward term, as SVG and CSV. Return the SVGs."""
    from harr.report.plots import learning_curve
    from harr.report.reward_plots import reward_distribution, reward_progress

    learning_curve(history, PLOTS / "train.svg", figure)
    reward_progress(history, PLOTS / "reward_progress.svg")
    reward_distribution(history, PLOTS / "reward_distribution.svg")
    return [PLOTS / "train.svg", PLOTS / "reward_progress.svg", PLOTS / "reward_distribution.svg"]


def write_stats(history: list[dict[str, Any]]) -> Path:
    """Write one line per step: its figures, and the quantiles of every reward term."""
    write_text(STATS, "".join(f"{json.dumps(row)}\n" for row in history))
    return STATS


def train(params: Params, run: Run) -> None:
    """Train the policy with the method of params.yaml; a killed run continues at its last checkpoint."""
    history, figure = train_policy(params, by_group(run.log))
    run.record("train", summary(history, figure))
    run.artifact(write_stats(history))
    for plot in plot_training(history, figure):
        run.artifact(plot, "plots")
    run.dataset("kept questions", FILTERED / "questions.jsonl", "training")


def join(params: Params) -> None:
    """Do the work of a further process of `accelerate launch -m tasks.train`."""
    train_policy(params, lambda step, values: None)


if __name__ == "__main__":
    main("train", train, join=join, end=partial(forget, WORK / "train"))
