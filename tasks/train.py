"""Stage train: build, call, record."""

import json
from pathlib import Path
from typing import Any

from prefect import task

from harr.io.files import write_text
from harr.params import Params
from harr.types import Log
from tasks.common import GPU_TASK, TASK, report_usage
from tasks.paths import ADAPTER, FILTERED, PLACES, PLOTS, STATS, WORK

LAST = ("beta", "target_margin_nats", "margin_nats", "held_out_accuracy")
"""Figures of the last step that tell a run of leret from others."""


@task(**GPU_TASK)
def train_policy(params: Params, log: Log) -> list[dict[str, Any]]:
    """Train by the method named in params.yaml; returns one row per step."""
    from harr.build.setup import open_setup
    from harr.train import METHODS

    with open_setup(params, PLACES, FILTERED / "questions.jsonl") as setup:
        history = METHODS[params.train.method](params.train, setup, ADAPTER, WORK / "train", log, params.seed)
        report_usage(log, generator=setup.generator, judge=setup.reward, sources=setup.retriever)
    return history


def summary(history: list[dict[str, Any]]) -> dict[str, float]:
    """The run in a few figures: rewards of the first and last ten steps, and the time.

    Of leret accuracies instead, of SFT's tokens and of IPO's pairs, each in its own last ten steps.
    """
    if "accuracy" in history[-1]:
        last_of = {"sft": [r for r in history if not r["phase"] % 2], "ipo": [r for r in history if r["phase"] % 2]}
        rewards = {f"{name}_accuracy_last_10": mean_reward(rows[-10:])[1] for name, rows in last_of.items()}
    else:
        ends = {"first": history[:10], "last": history[-10:]}
        rewards = {f"reward_{name}_10": mean_reward(rows)[1] for name, rows in ends.items()}
    last = {name: history[-1][name] for name in LAST if name in history[-1]}
    return {"steps": float(len(history)), **rewards, **last, "seconds": sum(row["seconds"] for row in history)}


def mean_reward(rows: list[dict[str, Any]]) -> tuple[str, float]:
    """The mean reward of some steps; LeReT has no rewards but the accuracy of its predictions.

    >>> mean_reward([{"reward_mean": 0.5}, {"reward_mean": 1.0}])
    ('reward', 0.75)
    """
    return "accuracy" if "accuracy" in rows[-1] else "reward", sum(row["reward_mean"] for row in rows) / len(rows)


@task(**TASK)
def plot_training(history: list[dict[str, Any]]) -> list[Path]:
    """Learning curve, progress and spread of every reward term: each as SVG and CSV. Returns the SVGs."""
    from harr.report.plots import learning_curve
    from harr.report.reward_plots import reward_distribution, reward_progress
    from harr.train.record import plain

    learning_curve([plain(row) for row in history], PLOTS / "train.svg")
    reward_progress(history, PLOTS / "reward_progress.svg")
    reward_distribution(history, PLOTS / "reward_distribution.svg")
    return [PLOTS / "train.svg", PLOTS / "reward_progress.svg", PLOTS / "reward_distribution.svg"]


def write_stats(history: list[dict[str, Any]]) -> Path:
    """All that is known of every step, a line a step: its figures, and the quantiles of every reward term."""
    write_text(STATS, "".join(f"{json.dumps(row)}\n" for row in history))
    return STATS
