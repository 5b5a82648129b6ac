"""Stage filter: the training questions whose rollouts disagree."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from prefect import task

from harr.errors import ParamsError
from harr.io.files import check_sums, read_jsonl, write_json
from harr.params import Params
from harr.types import Log
from tasks.common import GPU_TASK, TASK, report_usage
from tasks.expectations.process import expect
from tasks.paths import FILTERED, METRICS, PLACES, PLOTS, PREFERENCES_PAGE, QUESTIONS, WORK


@task(**GPU_TASK)
def filter_training_questions(params: Params, log: Log) -> dict[str, float]:
    """Try training questions until enough are found that the method can learn from."""
    from harr.builders.methods import method_of
    from harr.builders.setup import open_setup
    from harr.compute import distributed

    if params.train.prefers and distributed.count() > 1:
        raise ParamsError("train.method leret samples in one process: `python -m flows.filter`; or filter.preferences")
    prepare = method_of(params.train).prepare
    with open_setup(params, PLACES, QUESTIONS / "train.jsonl") as setup:
        figures = prepare(params.filter, setup, FILTERED, WORK / "filter", log, params.seed)
        sampled = setup.sample.opened if setup.sample else {}
        writers = {f"writer at {temperature:g}": sampler for temperature, sampler in sampled.items()}
        report_usage(log, generator=setup.generator, **writers, judge=setup.reward, sources=setup.retriever)
    return figures


def join_filtered(folders: Sequence[Path]) -> str:
    """Join the parts of leret that several machines sampled to data/filtered, with all that the stage writes beside it.

    Returns:
        What was joined, in a line.
    """
    from harr.preferences.join import join_parts

    figures = join_parts(folders, FILTERED, WORK / "filter")
    figures |= expect.fn("preferences", preferences_frame.fn())
    write_json(METRICS / "filter.json", {name: round(value, 6) for name, value in figures.items()})
    plot_filter.fn()
    write_preferences_page.fn()
    return (
        f"joined {len(folders)} parts: {figures['tried']:.0f} questions tried, {figures['kept']:.0f} to learn from, "
        f"{figures['pairs']:.0f} pairs and {figures['pairs_held_out']:.0f} held out"
    )


def statistics_rows() -> list[dict[str, object]]:
    """Return what was tried, one row per question."""
    check_sums(FILTERED, "dvc repro -f -s filter")
    return read_jsonl(FILTERED / "statistics.jsonl")


def filter_suite(params: Params) -> str:
    """Return the suite that what the stage kept is checked by."""
    if params.train.prefers:
        return "preferences"
    return "all_kept" if params.filter.keep == "all" else "filtered"


@task(**TASK)
def filtered_frame() -> pd.DataFrame:
    """Return the kept questions as a table for the suite ``filtered``."""
    frame = pd.DataFrame(statistics_rows())
    return frame[frame["kept"].astype(bool)]


@task(**TASK)
def write_preferences_page() -> Path:
    """Write examples of preferences and the distribution of their levels, as reports/preferences.html."""
    from harr.report.preferences import write_page

    write_page(FILTERED, PREFERENCES_PAGE)
    return PREFERENCES_PAGE


@task(**TASK)
def preferences_frame() -> pd.DataFrame:
    """Return the pairs of queries as a table for the suite ``preferences``."""
    rows = read_jsonl(FILTERED / "preferences.jsonl")
    learnt = {row["question_id"] for row in rows if row["split"] == "train"}
    both = learnt & {row["question_id"] for row in rows if row["split"] == "held_out"}
    return pd.DataFrame(
        {
            "id": row["id"],
            "split": row["split"],
            "hop": row["hop"],
            "prompt": row["prompt"],
            "chosen": row["responses"][chosen],
            "rejected": row["responses"][rejected],
            "margin": row["scores"][chosen] - row["scores"][rejected],
            "target_is_best": row["sft_target"] == row["responses"][-1] and row["scores"][-1] == max(row["scores"]),
            "in_other_split": row["question_id"] in both,
        }
        for row in rows
        for chosen, rejected in row["pairs"]
    )


@task(**TASK)
def plot_filter() -> Path:
    """Plot the histogram of rewards by verdict, as SVG and CSV."""
    from harr.report.plots import filter_histogram

    path = PLOTS / "filter.svg"
    filter_histogram(statistics_rows(), path)
    return path
