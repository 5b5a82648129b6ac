"""What stage evaluate holds against the trained arm."""

from pathlib import Path

import pytest
from episodes import played
from harr_audits.audit import audit_play
from harr_audits.conditions import AUDIT
from stages import SMOKE, nothing

from harr.params import Params
from harr.types import Episode, Outcome, Question
from tasks.audits import play_audits


@pytest.mark.fault(15)
def test_a_habit_that_the_frozen_arm_has_not_is_named(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = {"arms": ["frozen", "trained"], "resamples": 50, "audits": {AUDIT: {}}}
    params = Params.model_validate(SMOKE | {"evaluate": section})
    honest = [played(f"q{n}", "Rome", "ab", answers=("Ada",)) for n in range(40)]
    lazy = [Episode(Question(e.question.id, e.question.text, ("Ada",)), (), Outcome("Ada")) for e in honest]
    rows = {
        arm: [[{"id": e.question.id, "reward": paid} for e in honest]]
        for arm, paid in (("frozen", 0.0), ("trained", 1.0))
    }
    logged: dict[str, float] = {}
    episodes = {"frozen": honest, "trained": lazy}
    audit = play_audits(params, rows, episodes, lambda step, values: logged.update(values))[AUDIT]
    facts = audit["facts"]
    assert list(audit["alarms"]) == list(facts["named"]) == ["no_search"]
    assert facts["exploits"]["no_search"]["paid"] == 1.0
    said = "alarm: no_search: nothing is searched for in 100% of 40, before training 0% of 40"
    assert said in capsys.readouterr().out
    assert facts["swap"] == {"not_asked": "only 0 answers after a search were right in part, 10 are needed"}
    assert logged["exploits.no_search"] == 1.0 and logged["exploits.broken_call"] == 0.0
    row = next(row for row in audit["table"] if row["exploit"] == "no_search")
    assert list(row.values())[2:6] == ["100.0 %", "40", "0.0 %", "40"] and row["reward gained by it"] == "+1.000"
    assert audit["note"].endswith("not asked: only 0 answers after a search were right in part, 10 are needed")
    alone = play_audits(params, rows, {"trained": lazy}, nothing)[AUDIT]
    assert alone["facts"] == {} and not alone["table"] and audit_play(params, rows, {}).alarms == {}
