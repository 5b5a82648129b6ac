"""What stage evaluate holds against the trained arm."""

from pathlib import Path

import pytest
from episodes import played
from stages import SMOKE, nothing

from harr.params import Params
from harr.types import Episode, Outcome, Question
from tasks.audit import audit_play


@pytest.mark.fault(15)
def test_a_habit_that_the_frozen_arm_has_not_is_named_and_told(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    params = Params.model_validate(SMOKE | {"evaluate": {"arms": ["frozen", "full"], "resamples": 50}})
    honest = [played(f"q{n}", "Rome", "ab", answers=("Ada",)) for n in range(40)]
    lazy = [Episode(Question(e.question.id, e.question.text, ("Ada",)), (), Outcome("Ada")) for e in honest]
    rows = {
        arm: [[{"id": e.question.id, "reward": paid} for e in honest]] for arm, paid in (("frozen", 0.0), ("full", 1.0))
    }
    logged: dict[str, float] = {}
    episodes = {"frozen": honest, "full": lazy}
    found = audit_play(params, rows, episodes, lambda step, values: logged.update(values), model=None)
    assert list(found["named"]) == ["no_search"] and found["exploits"]["no_search"]["paid"] == 1.0
    said = "alarm: no_search: nothing is searched for in 100% of 40, before training 0% of 40"
    assert said in capsys.readouterr().out
    assert found["swap"] == {"untold": "only 0 answers after a search were right in part, 10 are needed"}
    assert logged["exploits.no_search"] == 1.0 and logged["exploits.broken_call"] == 0.0
    assert audit_play(params, rows, {"full": lazy}, nothing, model=None) == {}
