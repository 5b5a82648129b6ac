"""Figures: the same bytes every time, a CSV beside each, n in the title, and no fault on odd rows."""

import csv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from digests import digests

from harr import arms
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
    for arm, mean in (("bm25", 0.4), ("frozen", 0.3), ("full", 0.9), ("mine", 0.5))
    for metric in ("answer_f1", "recall", "hop_recall_1")
] + [row("full", "hop_recall_2", 0.8, n=17)]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.parametrize(
    ("plot", "rows", "size"),
    [
        (plots.learning_curve, CURVE, "n = 20 steps"),
        (plots.filter_histogram, FILTER, "n = 4)"),
        (plots.arms, ARMS, "n = 40 questions"),
        (plots.hops, ARMS, "n = 17"),
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
    told = {"step": "2", "reward_mean": "0.1", "zero_std_share": "0.25", "loss": "0.333333"}
    assert table(tmp_path / "train.csv")[1] == told
    found = {"recall": 0.5, "questions": 30.0, "seconds": 2.0}
    rows: list[dict[str, Any]] = [{**row, "step": row["step"] - 1, "quantiles": {"total": [0.5]}} for row in CURVE]
    rows[0]["validation_before"], rows[9]["validation"] = found, found | {"recall": 0.75}
    plots.learning_curve(rows, tmp_path / "train.svg")
    assert "recall of 30 validation questions" in (tmp_path / "train.svg").read_text().casefold()
    csv_rows = table(tmp_path / "train.csv")
    assert csv_rows[9]["validation.recall"] == "0.75" and csv_rows[8]["validation.recall"] == ""
    assert "quantiles" not in csv_rows[0]


def test_csv_of_the_filter_counts_played_questions_by_mean_reward(tmp_path: Path) -> None:
    plots.filter_histogram(FILTER, tmp_path / "filter.svg")
    bars = [bar for bar in table(tmp_path / "filter.csv") if bar["kept"] != "0" or bar["dropped"] != "0"]
    assert bars == [
        {"reward_mean": "0.0", "kept": "0", "dropped": "1"},
        {"reward_mean": "0.5", "kept": "2", "dropped": "0"},
        {"reward_mean": "1.0", "kept": "0", "dropped": "1"},
    ]


def test_csv_of_the_hops_takes_given_passages_only_where_there_is_nothing_else(tmp_path: Path) -> None:
    plots.hops([*ARMS, row("full", "given_hop_recall_1", 0.7)], tmp_path / "hops.svg")
    assert [(hop["arm"], hop["hop"]) for hop in table(tmp_path / "hops.csv")][-2:] == [("mine", "1"), ("full", "2")]
    plots.hops([row("full", "given_hop_recall_3", 0.7)], tmp_path / "hops.svg")
    assert table(tmp_path / "hops.csv")[0]["hop"] == "3"


def test_odd_rows_still_give_a_figure(tmp_path: Path) -> None:
    odd: list[tuple[Any, Any]] = [
        (plots.learning_curve, CURVE[:1]),
        (plots.learning_curve, [{"step": 1, "reward_mean": -0.5, "zero_std_share": 1.0}] * 12),
        (plots.filter_histogram, FILTER[4:]),
        (plots.hops, [row("full", "answer_f1", 0.5)]),
        (plots.arms, [row(f"arm{n}", "given_recall", 0.5, n=n + 1) for n in range(5)]),
    ]
    for plot, rows in odd:
        plot(rows, tmp_path / "odd.svg")
        assert ElementTree.fromstring((tmp_path / "odd.svg").read_text(encoding="utf-8")).tag.endswith("svg")


def test_settings_are_drawn_apart_and_their_mixture_is_not(tmp_path: Path) -> None:
    rows = [
        {"setting": setting, **row("full", metric, mean, n=n)}
        for setting, mean, n in (("distractor", 0.9, 10), ("open", 0.5, 30))
        for metric in ("recall", "hop_recall_1")
    ]
    plots.arms(rows, tmp_path / "arms.svg")
    plots.hops(rows, tmp_path / "hops.svg")
    for name in ("arms", "hops"):
        words = " ".join(ElementTree.fromstring((tmp_path / f"{name}.svg").read_text()).itertext())
        assert "distractor" in words and "n = 10 questions" in words
        assert "n = 40" not in words and "n = 10 to" not in words
        first = table(tmp_path / f"{name}.csv")[0]
        assert (first["setting"], first["mean"]) == ("distractor", "0.9")


def test_arms_keep_their_looks_and_have_no_panel_for_a_metric_of_some_questions() -> None:
    styles = [plots.arm_style(arm, ["bm25", "frozen", "history", "full", "mine"]) for arm in arms.ARMS]
    assert len({colour for colour, _ in styles}) == 11 and len({marker for _, marker in styles}) == 14
    assert plots.arm_style("mine", ["mine", "full"]) not in styles
    rows = [row("frozen", name, 0.5, n=n) for name, n in (("answer_f1", 32), ("ndcg_at_10", 1), ("recall", 32))]
    drawn = plots.draw_arms(rows)
    assert [axes.get_xlabel() for axes in drawn.axes] == ["answer F1, %", "recall, %"]
    assert drawn.get_suptitle() == "Arms with 95 % intervals (n = 32 questions)"
