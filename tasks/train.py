"""Stage train: build, call, record."""

import shutil
from pathlib import Path

from prefect import task

from harr.params import Params
from harr.types import Log
from tasks.common import GPU_TASK, TASK, report_usage
from tasks.filter import FILTERED

ADAPTER, WORK = Path("models/adapter"), Path("work/train")


@task(**GPU_TASK)
def train_policy(params: Params, log: Log) -> list[dict[str, float]]:
    """Train by the method named in params.yaml; returns one row per step."""
    from harr import processes
    from harr.players import open_setup
    from harr.train import METHODS

    with open_setup(params, FILTERED / "questions.jsonl") as setup:
        history = METHODS[params.train.method](params.train, setup, ADAPTER, WORK, log, params.seed)
        report_usage(log, generator=setup.generator, judge=setup.reward)
    if processes.is_main():
        shutil.rmtree(WORK, ignore_errors=True)  # a run that is done must not answer for code that changes later
    return history


def summary(history: list[dict[str, float]]) -> dict[str, float]:
    """The run in a few figures: rewards of the first and last ten steps, and the time."""
    ends = {"first": history[:10], "last": history[-10:]}
    rewards = {f"reward_{name}_10": sum(r["reward_mean"] for r in rows) / len(rows) for name, rows in ends.items()}
    return {"steps": float(len(history)), **rewards, "seconds": sum(row["seconds"] for row in history)}


@task(**TASK)
def plot_training(history: list[dict[str, float]]) -> Path:
    """Learning curve, as SVG and CSV."""
    from harr.plots import learning_curve

    path = Path("plots/train.svg")
    learning_curve(history, path)
    return path
