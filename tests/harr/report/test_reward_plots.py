"""Every reward term has its curve and its spread."""

import csv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from harr.report import reward_plots
from harr.report.reward_plots import curve
from harr.train.record import term_figures


def run(steps: int, *, late: bool = False) -> list[dict[str, Any]]:
    """Make a run of two terms whose second half is another phase; with ``late`` the second term begins there."""
    random = np.random.default_rng(0)
    rows = []
    for step in range(steps):
        second = 2 * step >= steps
        scores = {"answer_em": (random.random(64) < 0.1 + 0.1 * np.log1p(step)).astype(float).tolist()}
        scores["own.terms:novelty"] = [[0.5, 1.0]] * 64 if second or not late else [None] * 64
        totals = scores["answer_em"]
        mean = {"reward_mean": float(np.mean(totals)), "episodes": 64.0}
        rows.append({"step": step, "phase": float(second), **mean, **term_figures(scores, totals)})
    return rows


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def test_the_progress_of_every_term_stands_in_the_table_and_in_the_figure(tmp_path: Path) -> None:
    rows = run(60)
    reward_plots.reward_progress(rows, tmp_path / "progress.svg")
    found = table(tmp_path / "progress.csv")
    assert {row["term"] for row in found} == {"total", "answer_em", "own.terms.novelty"} and len(found) == 180
    em = [row for row in found if row["term"] == "answer_em"]
    assert [float(row["mean"]) for row in em] == pytest.approx([row["reward_answer_em_mean"] for row in rows], abs=1e-5)
    text = " ".join(ElementTree.fromstring((tmp_path / "progress.svg").read_text(encoding="utf-8")).itertext())
    for word in ("n = 60 steps of 64 episodes", "new phase", "answer_em", "mean over 7 steps"):
        assert word in text


def test_a_phase_is_smoothed_by_itself_and_a_term_may_be_called_a_mean(tmp_path: Path) -> None:
    """A term's deviation is found with its mean, whatever its name contains."""
    rows = [{"step": step, "phase": float(step >= 30), "reward_mean": float(step >= 30)} for step in range(60)]
    _, means, smoothed = curve(rows, "total")
    assert (means == smoothed).all()
    row = {"step": 0, "reward_mean": 0.5, "reward_own.a_mean_mean": 0.5, "reward_own.a_mean_std": 0.25}
    reward_plots.reward_progress([row | {"quantiles": {"own.a_mean": [0.5] * 7}}], tmp_path / "progress.svg")
    assert [row["std"] for row in table(tmp_path / "progress.csv") if row["term"] == "own.a_mean"] == ["0.25"]


def test_the_spread_of_every_term_is_shown_by_quantiles(tmp_path: Path) -> None:
    rows = run(100, late=True)
    reward_plots.reward_distribution(rows, tmp_path / "spread.svg")
    found = table(tmp_path / "spread.csv")
    assert len(found) == 250, "the second term begins in the middle"
    assert [float(found[-1][name]) for name in ("min", "p50", "max")] == [0.75] * 3
    assert (tmp_path / "spread.svg").read_text(encoding="utf-8").count('<g id="axes_') == 3
