"""Figures: the same bytes every time, each with a CSV, n in the title, and no failure on odd rows."""

import csv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from digests import digests

from harr.report import plots

CURVE = [{"step": s, "reward_mean": s / 20, "zero_std_share": 0.25, "loss": 1 / 3} for s in range(1, 21)]
FILTER = [
    {"id": "a", "reward_mean": 0.0, "reward_std": 0.0, "kept": False, "reason": "all wrong"},
    {"id": "b", "reward_mean": 0.51, "reward_std": 0.5, "kept": True, "reason": "rollouts disagree"},
    {"id": "c", "reward_mean": 0.49, "reward_std": 0.5, "kept": True, "reason": "rollouts disagree"},
    {"id": "d", "reward_mean": 1.0, "reward_std": 0.0, "kept": False, "reason": "all right"},
    {"id": "e", "kept": False, "reason": "no given passages"},
]


def row(arm: str, metric: str, mean: float, n: int = 40) -> dict[str, Any]:
    return {"arm": arm, "metric": metric, "mean": mean, "low": mean - 0.1, "high": mean + 0.05, "n": n}


ARMS = [
    row(arm, metric, mean)
    for arm, mean in (("bm25", 0.4), ("frozen", 0.3), ("trained", 0.9), ("mine", 0.5))
    for metric in ("answer_f1", "recall", "hop_recall_1")
] + [row("trained", "hop_recall_2", 0.8, n=17)]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.parametrize(
    ("plot", "rows", "size"),
    [
        (plots.learning_curve, CURVE, "n = 20 steps"),
        (plots.filter_histogram, FILTER, "n = 4)"),
        (plots.arms, ARMS, "n = 40 questions"),
    ],
)
def test_an_svg_of_text_and_the_same_bytes_twice(plot: Any, rows: Any, size: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        plot(rows, tmp_path / name / "drawn.svg")
    assert digests(tmp_path / "one") == digests(tmp_path / "two") and (tmp_path / "one/drawn.csv").exists()
    text = (tmp_path / "one/drawn.svg").read_text(encoding="utf-8")
    assert size in " ".join(ElementTree.fromstring(text).itertext()) and "<dc:date>" not in text


def test_the_learning_curve_and_its_csv_show_what_training_and_validation_found(tmp_path: Path) -> None:
    plots.learning_curve(CURVE, tmp_path / "train.svg")
    expected = {"step": "2", "reward_mean": "0.1", "zero_std_share": "0.25", "loss": "0.333333"}
    assert table(tmp_path / "train.csv")[1] == expected
    found = {"recall": 0.5, "questions": 30.0, "seconds": 2.0}
    rows: list[dict[str, Any]] = [{**row, "step": row["step"] - 1, "quantiles": {"total": [0.5]}} for row in CURVE]
    rows[0]["validation_before"], rows[9]["validation"] = found, found | {"recall": 0.75}
    plots.learning_curve(rows, tmp_path / "train.svg")
    assert "recall of 30 validation questions" in (tmp_path / "train.svg").read_text().casefold()
    csv_rows = table(tmp_path / "train.csv")
    assert csv_rows[9]["validation.recall"] == "0.75" and csv_rows[8]["validation.recall"] == ""
    assert "quantiles" not in csv_rows[0]
