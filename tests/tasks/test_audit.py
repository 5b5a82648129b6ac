"""What stage evaluate holds against the trained arm."""

from pathlib import Path

import pytest
from episodes import played
from stages import SMOKE, nothing

from harr.params import Params
from harr.rag.pipelines.multistep import multistep
from harr.rag.rollout import play
from harr.types import Episode, Outcome, Passage, Question, Retrieval
from harr.world.scripted import Scripted
from tasks.audit import audit_play


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
    found = audit_play.fn(params, rows, episodes, lambda step, values: logged.update(values), model=None)
    assert list(found["named"]) == ["no_search"] and found["exploits"]["no_search"]["paid"] == 1.0
    said = "alarm: no_search: nothing is searched for in 100% of 40, before training 0% of 40"
    assert said in capsys.readouterr().out
    assert found["swap"] == {"untold": "only 0 answers after a search were right in part, 10 are needed"}
    assert logged["exploits.no_search"] == 1.0 and logged["exploits.broken_call"] == 0.0
    assert audit_play.fn(params, rows, {"full": lazy}, nothing, model=None) == {}


def test_answers_that_are_read_by_the_scripted_reader_fall_with_another_question_s_passages(workplace: Path) -> None:
    class Own:
        def retrieve(self, searches):  # type: ignore[no-untyped-def]
            names = [search.question.text.split()[2] for search in searches]
            return [Retrieval((Passage(n, f"{n} Brown was born in {n}ton.", f"{n} Brown"),)) for n in names]

    names = [f"{first}{last}" for first in ("Ad", "Ber", "Cor", "Dor") for last in ("a", "an", "in", "ia")]
    asked = [Question(n, f"Where was {n} Brown born?", (f"{n}ton",), (n,)) for n in names]
    params = Params.model_validate(SMOKE | {"evaluate": {"arms": ["frozen", "full"], "resamples": 200}})
    episodes = play(asked, lambda q: multistep(q, max_hops=2), Own(), Scripted())
    rows = {arm: [[{"id": q.id} for q in asked]] for arm in ("frozen", "full")}
    both = {"frozen": episodes, "full": episodes}
    found = audit_play.fn(params, rows, both, nothing, model=None)
    assert found["named"] == {} and found["swap"]["own"] == 1.0 and found["swap"]["low"] > 0.5
