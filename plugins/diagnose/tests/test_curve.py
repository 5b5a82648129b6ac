"""`harr diagnose --curve`: the fit, its interval, and what it says after four trainings in a small world."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from harr_diagnose.curve import forecast

from benchmarks.planted import Project, train_project
from harr.io.files import read_json, write_json

SIZES = [50, 100, 200, 400]
ERRORS = 0.9 * np.array(SIZES) ** -0.25


def test_a_power_law_is_continued() -> None:
    estimate = forecast(1 - ERRORS, 1 - ERRORS[None], SIZES, 1200, 100)
    assert estimate["gain"] == pytest.approx(ERRORS[-1] - 0.9 * 1600**-0.25)
    assert estimate["low"] == pytest.approx(estimate["high"])
    more = forecast(1 - ERRORS, 1 - ERRORS[None], SIZES, 12_000, 100)["gain"]
    assert estimate["gain"] < more < ERRORS[-1], "never above 1"


def test_what_falls_is_said_to_fall_and_a_flat_curve_gains_nothing() -> None:
    falling = np.array([0.5, 0.45, 0.4, 0.35])
    assert forecast(falling, falling[None], SIZES, 400, 100)["gain"] < 0
    flat = np.full(4, 0.7)
    assert forecast(flat, flat[None], SIZES, 400, 100)["gain"] == pytest.approx(0.0)
    perfect = np.ones(4)
    assert forecast(perfect, perfect[None], SIZES, 400, 100)["gain"] == pytest.approx(0.0), (
        "no error, no logarithm of 0"
    )


def test_the_interval_is_that_of_the_draws() -> None:
    rng = np.random.default_rng(0)
    draws = 1 - ERRORS + rng.normal(scale=0.02, size=(4000, 4))
    estimate = forecast(1 - ERRORS, draws, SIZES, 400, 100)
    gains = [forecast(draw, draw[None], SIZES, 400, 100)["gain"] for draw in draws[:400]]
    assert estimate["low"] < estimate["gain"] < estimate["high"]
    inside = np.mean([estimate["low"] <= gain <= estimate["high"] for gain in gains])
    assert 0.92 < inside < 0.98


def test_scores_off_the_line_widen_the_interval() -> None:
    """Normal errors of a known size: Student's t with two degrees of freedom holds the true gain in 95 of 100."""
    rng = np.random.default_rng(0)
    true, hits = 0.9 * (400**-0.25 - 800**-0.25), 0
    for scores in 1 - ERRORS * np.exp(rng.normal(scale=0.03, size=(400, 4))):
        estimate = forecast(scores, np.tile(scores, (2000, 1)), SIZES, 400, 100)
        hits += estimate["low"] <= true <= estimate["high"]
    assert 0.92 < hits / 400 < 0.98


def test_four_parts_are_trained_and_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harr: Callable[..., CompletedProcess[str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    train_project(Project(literal=2, params={"train": {"warm_start": 10, "steps": 2}}))
    done = harr("diagnose", "--curve")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[-6:]
    sizes = [15, 30, 60, 120]
    heads = [f"infonce with {size} training questions: " for size in sizes]
    assert all(line.startswith(head) for line, head in zip(lines, heads, strict=False))
    assert lines[0].endswith(" % all gold found of 40 validation questions")
    assert [line.split(":")[0] for line in lines[4:]] == ["with 120 more", "with 360 more"]
    curve = read_json(Path("diagnosis/curve.json"))
    assert [point["questions"] for point in curve["points"]] == sizes and curve["metric"] == "all_gold"
    assert curve["points"][-1]["mean"] > curve["points"][0]["mean"]
    assert all(one["low"] <= one["gain"] <= one["high"] for one in curve["forecasts"])
    settings = read_json(Path("params.yaml"))
    foreign = {"method": "function", "function": "benchmarks.planted:constant", "learns": "retriever"}
    write_json(Path("params.yaml"), settings | {"train": foreign | {"steps": 1}})
    refused = harr("diagnose", "--curve").stderr
    assert refused == "error: --curve trains infonce, which train.method function has no settings for\n"
    write_json(Path("params.yaml"), settings)
    Path("data/questions/sha256sums.txt").unlink()
    Path("data/questions/validation.jsonl").write_text("")
    assert (
        "here are 120 and 0; add questions, or set download.validation_questions" in harr("diagnose", "--curve").stderr
    )
