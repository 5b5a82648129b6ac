"""Stage filter: the training questions whose rollouts disagree."""

from pathlib import Path

import pandas as pd
from prefect import task

from harr.files import check_sums, read_jsonl
from harr.params import Params
from harr.types import Log
from tasks.common import GPU_TASK, TASK, report_usage
from tasks.download import QUESTIONS

FILTERED, WORK = Path("data/filtered"), Path("work/filter")


@task(**GPU_TASK)
def filter_training_questions(params: Params, log: Log) -> dict[str, float]:
    """Roll out training questions until enough are kept."""
    from harr.filter import filter_questions
    from harr.players import open_setup

    with open_setup(params, QUESTIONS / "train.jsonl", sampling=params.filter.keep == "disagreeing") as setup:
        figures = filter_questions(params.filter, setup, FILTERED, WORK, log, params.seed)
        report_usage(log, generator=setup.generator, judge=setup.reward, sources=setup.retriever)
        return figures


def statistics_rows() -> list[dict[str, object]]:
    """What was tried, one row per question."""
    check_sums(FILTERED, "dvc repro -f -s filter")
    return read_jsonl(FILTERED / "statistics.jsonl")


@task(**TASK)
def filtered_frame() -> pd.DataFrame:
    """The kept questions as a table for the suite ``filtered``."""
    frame = pd.DataFrame(statistics_rows())
    return frame[frame["kept"].astype(bool)]


@task(**TASK)
def plot_filter() -> Path:
    """Histogram of rewards by verdict, as SVG and CSV."""
    from harr.plots import filter_histogram

    path = Path("plots/filter.svg")
    filter_histogram(statistics_rows(), path)
    return path
