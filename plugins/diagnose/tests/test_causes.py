"""Every cause is named where its fault is in the figures, and none where they are sound."""

from dataclasses import replace

import pytest
from harr_diagnose.causes import CAUSES, MATTERS, Facts, explain

WORSE = {"gain": -0.1, "low": -0.15, "high": -0.05, "n": 300}
LEVEL = {"gain": 0.0, "low": -0.02, "high": 0.02, "n": 800}
BETTER = {"gain": 0.1, "low": 0.05, "high": 0.15, "n": 300}
SOUND = Facts(
    metric="recall",
    baseline="frozen",
    gain=BETTER,
    train=1000,
    leaked=3,
    start={"gain": -0.02, "low": -0.05, "high": 0.01, "n": 300},
    searched=100,
    mislabelled=0.05,
    pool_recall=0.6,
    general={"before": 0.9, "gain": -0.02, "low": -0.04, "high": 0.0, "n": 300},
    cosine=0.95,
    validation=(0.3, 0.35, 0.38, 0.4, 0.41, 0.4, 0.41, 0.4, 0.41),
    validated=100,
    rewards=(0.3, 0.4, 0.45, 0.5, 0.5, 0.49, 0.5, 0.51, 0.5, 0.5),
    equal_rewards=0.7,
    reader={"from_memory": 0.1, "with_gold": 0.5, "n": 300.0},
)
FALLING, RISING = (0.3, 0.4, 0.41, 0.3, 0.22), (0.1, 0.15, 0.2, 0.24, 0.3, 0.34, 0.4, 0.46)
FORGOT = {"before": 0.9, "gain": -0.2, "low": -0.25, "high": -0.15, "n": 300}
PLANTED: dict[str, tuple[dict[str, object], ...]] = {
    "leak": ({"leaked": 15},),
    "forgetting": ({"general": FORGOT},),
    "false negatives": ({"mislabelled": 0.4},),
    "a worse start": ({"start": {"gain": -0.1, "low": -0.15, "high": -0.06, "n": 300}},),
    "too high a rate": ({"cosine": 0.4, "validation": FALLING},),
    "gold beyond the pool": ({"pool_recall": 0.2},),
    "reader knows the answers": (
        {"reader": {"from_memory": 0.5, "with_gold": 0.1, "n": 300.0}},
        {"reader": {"from_memory": 0.2, "with_gold": 0.0, "n": 300.0}},
    ),
    "equal rewards": ({"equal_rewards": 0.95},),
    "too few steps": ({"cosine": 0.9999}, {"validation": RISING}, {"validation": (), "rewards": RISING}),
    "too few test questions": ({"gain": {"gain": 0.04, "low": -0.06, "high": 0.14, "n": 30}, "leaked": 0},),
}
HIDDEN = {"leak", "forgetting", "false negatives"}
"""Causes that a gain may hide."""


def named(facts: Facts) -> list[str]:
    return [str(row["cause"]) for row in explain(facts) if row["named"]]


def test_every_cause_has_a_planted_fault() -> None:
    assert {cause.name for cause in CAUSES} == PLANTED.keys()
    assert {cause.name for cause in CAUSES if cause.always} == HIDDEN


@pytest.mark.parametrize(("cause", "changes"), [(name, one) for name, some in PLANTED.items() for one in some])
def test_a_planted_fault_is_named_and_no_other(cause: str, changes: dict[str, object]) -> None:
    assert named(replace(SOUND, **{"gain": WORSE, **changes})) == [cause]
    if "gain" not in changes:
        assert named(replace(SOUND, **changes)) == [cause] * (cause in HIDDEN), "training gained nevertheless"


@pytest.mark.parametrize("gain", [BETTER, WORSE, LEVEL])
def test_a_sound_run_is_not_accused(gain: dict[str, float]) -> None:
    assert named(replace(SOUND, gain=gain)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"cosine": 0.4},
        {"validation": FALLING},
        {"cosine": 0.4, "validation": FALLING, "validated": 20},
        {"start": {"gain": -0.1, "low": -0.3, "high": 0.1, "n": 20}},
        {"start": {"gain": -0.03, "low": -0.05, "high": -0.01, "n": 900}},
        {"general": FORGOT | {"high": 0.01}},
        {"general": FORGOT | {"gain": -MATTERS / 2}},
        {"rewards": RISING},
        {"validation": RISING[:4], "rewards": RISING[:4]},
        {"reader": {"from_memory": 0.0, "with_gold": 0.0, "n": 300.0}},
    ],
)
def test_half_of_the_evidence_accuses_nobody(changes: dict[str, object]) -> None:
    assert named(replace(SOUND, gain=WORSE, **changes)) == []


def test_what_was_not_measured_is_neither_named_nor_cleared() -> None:
    bare = Facts("recall", "frozen", WORSE, train=100, leaked=0)
    unknown = {row["cause"] for row in explain(bare) if row["named"] is None}
    assert unknown == {cause.name for cause in CAUSES} - {"leak", "too few test questions"}


def test_evidence_has_its_figures() -> None:
    evidence = {row["cause"]: str(row["evidence"]) for row in explain(replace(SOUND, gain=WORSE, leaked=15))}
    assert evidence["leak"] == "15 of 300 test questions are, or nearly are, a training question"
    assert evidence["forgetting"].endswith("300 general queries: 90.0 before, changed by -2.0 [-4.0, +0.0]")
    assert evidence["too high a rate"].endswith("they were; validation was 41.0 at best and 41.0 at the end (n 100)")
    assert evidence["equal rewards"].startswith("in 70.0 % of the groups of 10 steps")
