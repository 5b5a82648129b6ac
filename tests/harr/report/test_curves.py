"""Panels of a training run: those that its method has, none twice, none that is 0 throughout."""

from typing import Any

import pytest

from harr.report.curves import Phase, seconds_by_phase, training_panels

GRPO = {"entropy": 1.0, "kl": 0.02, "clip_share": 0.1, "grad_norm": 2.0, "loss": 0.5, "zero_std_share": 0.25}
METHODS = {
    "grpo": (GRPO, ["Groups without signal", "Entropy", "KL", "Clip share", "Gradient norm", "Loss"]),
    "ppo": ({"value_loss": 0.3, "entropy": 1.0}, ["Entropy", "Value loss"]),
    "pqn": ({"temperature": 0.5, "loss": 0.1}, ["Loss", "Temperature"]),
    "infonce": ({"loss": 3.0, "grad_norm": 1.0}, ["Gradient norm", "Loss"]),
    "agent": ({"own_tokens": 40.0, "told_tokens": 200.0}, ["Tokens written", "Tokens read"]),
}


def rows(**figures: float) -> list[dict[str, Any]]:
    """Steps whose figures rise a little, each with the same reward as its only term."""
    return [
        {"step": step, "phase": float(step >= 20), "seconds": 2.0, "episodes": 4.0, "reward_mean": step / 100}
        | {"reward_recall_mean": step / 100 + 1e-9, "quantiles": {"total": [], "recall": []}}
        | {name: value * (1 + step / 100) for name, value in figures.items()}
        for step in range(30)
    ]


def test_a_method_has_the_panels_of_what_it_writes_none_twice_and_none_of_zeros() -> None:
    for figures, titles in METHODS.values():
        panels, zero = training_panels(rows(**figures))
        assert [panel.title for panel in panels] == ["Reward", *titles, "Seconds"] and zero == []
    panels, zero = training_panels(rows(kl=0.0, entropy=1.0))
    assert zero == ["KL"] and "Reward: recall" not in [panel.title for panel in panels]
    assert len({panel.data for panel in panels}) == len(panels)
    apart = [{**row, "reward_recall_mean": 0.5} for row in rows()]
    assert "Reward: recall" in [panel.title for panel in training_panels(apart)[0]]


def test_the_mean_over_steps_does_not_cross_phases_and_gaps_are_left_out() -> None:
    jump = [{**row, "entropy": 1.0 + row["phase"]} for row in rows()]
    jump[3]["entropy"] = float("nan")
    (panel,) = (panel for panel in training_panels(jump)[0] if panel.title == "Entropy")
    raw, smooth = panel.lines
    assert len(raw.points) == 29 and {y for x, y in smooth.points if x <= 20} == {1.0}
    assert min(y for x, y in smooth.points if x > 20) == pytest.approx(2.0)


def test_seconds_are_summed_by_phase_and_by_play_and_update() -> None:
    told = rows()
    told[5]["validation"] = {"recall": 0.5, "questions": 9.0, "seconds": 7.0}
    told[0]["phase"] = -1.0
    found = seconds_by_phase(told)
    assert found[0] == Phase("warm start", 1, 2.0, None, None, 0.0)
    assert found[1] == Phase("phase 0", 19, 38.0, None, None, 7.0) and len(found) == 3
    told = [{**row, "play_seconds": 0.5} for row in rows()]
    panels = {panel.title: panel for panel in training_panels(told)[0]}
    assert {y for _, y in panels["Seconds of play"].lines[0].points} == {0.5}
    assert {y for _, y in panels["Seconds of update"].lines[0].points} == {1.5}
    assert seconds_by_phase(told)[0] == Phase("phase 0", 20, 40.0, 10.0, 30.0, 0.0)
    del told[3]["play_seconds"]  # a row of a former version
    assert seconds_by_phase(told)[0].play is None and seconds_by_phase(told)[1].play == 5.0
