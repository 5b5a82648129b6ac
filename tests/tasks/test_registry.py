"""The alias champion moves only when the interval says so."""

import json
from pathlib import Path

import pytest

from harr.errors import PromotionRefused
from harr.params import Params
from tasks.registry import CHAMPION, promote, register, rollback
from tasks.tracking import open_client, tracked_run

QUESTIONS = 40


@pytest.fixture
def params(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """The smoke recipe, in an empty store."""
    monkeypatch.setenv("HARR_EXECUTION", "one")
    return Params.load()


def add(params: Params, right: int, *, frozen: int | None = 4, evaluation: str = "same") -> str:
    """Register a version that answers the first ``right`` of 40 questions; returns its number."""
    Path("model").mkdir(exist_ok=True)
    Path("model/config.json").write_text("{}")
    Path("rows").mkdir(exist_ok=True)
    for arm, count in {"full": right, "frozen": frozen}.items():
        path = Path("rows") / f"{arm}.jsonl"
        path.unlink(missing_ok=True)
        if count is not None:
            rows = [{"id": f"q{i}", "answer_f1": float(i < count)} for i in range(QUESTIONS)]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with tracked_run("merge", params) as run:
        return register(run, params, Path("model"), Path("rows"), {"evaluation": evaluation})


def champion(params: Params) -> str:
    """Number of the version that holds the alias."""
    return str(open_client(params).get_model_version_by_alias("harr-smoke", CHAMPION).version)


def test_the_first_champion_must_beat_its_own_frozen_arm(params: Params) -> None:
    with pytest.raises(PromotionRefused, match="no candidate"):
        promote.fn(params)
    add(params, right=5)
    with pytest.raises(PromotionRefused, match=r"frozen .* answer_f1 \+0\.025 .* does not lie above 0"):
        promote.fn(params)
    second = add(params, right=24)
    assert "answer_f1 +0.500" in promote.fn(params)
    assert champion(params) == second
    with pytest.raises(PromotionRefused, match="champion already"):
        promote.fn(params)


def test_a_worse_candidate_is_refused_and_a_better_one_can_be_rolled_back(params: Params) -> None:
    first = add(params, right=20)
    promote.fn(params)
    add(params, right=12)
    with pytest.raises(PromotionRefused, match=rf"against champion {first}: answer_f1 -0\.200"):
        promote.fn(params)
    assert champion(params) == first
    third = add(params, right=32)
    assert f"against champion {first}: answer_f1 +0.300" in promote.fn(params)
    assert champion(params) == third
    assert rollback.fn(params) == f"rolled back: champion of harr-smoke is version {first} (was version {third})"
    assert champion(params) == first
    with pytest.raises(PromotionRefused, match="no previous champion"):
        rollback.fn(params)


def test_versions_that_were_asked_other_questions_are_not_compared(params: Params) -> None:
    first = add(params, right=20)
    promote.fn(params)
    add(params, right=40, evaluation="other")
    with pytest.raises(PromotionRefused, match="did not answer the same questions"):
        promote.fn(params)
    assert champion(params) == first


def test_missing_rows_or_metrics_are_named(params: Params) -> None:
    add(params, right=20, frozen=None)
    with pytest.raises(PromotionRefused, match=r"no rows of arm frozen; add frozen to evaluate\.arms"):
        promote.fn(params)
    other = params.model_copy(update={"reward": params.reward.model_copy(update={"terms": {"recall": 1.0}})})
    add(params, right=20)
    with pytest.raises(PromotionRefused, match="not measured in recall"):
        promote.fn(other)
