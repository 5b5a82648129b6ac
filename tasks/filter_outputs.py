"""Outputs of stage filter: questions, preferences, statistics and their plot."""

from pathlib import Path

import pandas as pd

from harr.io.files import check_sums, read_jsonl
from tasks.paths import FILTERED, PLOTS


def statistics_rows() -> list[dict[str, object]]:
    """Return one row per question that was played."""
    check_sums(FILTERED, "dvc repro -f -s filter")
    return read_jsonl(FILTERED / "statistics.jsonl")


def filtered_frame() -> pd.DataFrame:
    """Return the kept questions as a table for the suite ``filtered``."""
    frame = pd.DataFrame(statistics_rows())
    return frame[frame["kept"].astype(bool)]


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


def plot_filter() -> Path:
    """Plot the histogram of rewards by verdict, as SVG and CSV."""
    from harr.report.plots import filter_histogram

    path = PLOTS / "filter.svg"
    filter_histogram(statistics_rows(), path)
    return path
