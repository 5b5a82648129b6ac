"""Which runs the trained arms have, and where they lie."""

from pathlib import Path

import pytest

from harr.corpus.passages import write_questions
from harr.errors import CorpusError
from harr.params import Params
from harr.types import Question
from tasks.arms import train_each, trained_runs


def params_with(workplace: Path, **changes: object) -> Params:
    params = Params.load()
    return params.model_copy(update={"seed": 4, "evaluate": params.evaluate.model_copy(update=changes)})


def test_every_trained_arm_has_a_folder_per_seed_and_the_first_full_is_the_adapter(workplace: Path) -> None:
    runs = trained_runs(params_with(workplace, arms=("bm25", "frozen", "infonce", "full"), seeds=2))
    assert runs == {
        "infonce": [Path("models/arms/infonce-4"), Path("models/arms/infonce-5")],
        "full": [Path("models/adapter"), Path("models/arms/full-5")],
    }


def test_untrained_arms_have_none(workplace: Path) -> None:
    assert trained_runs(params_with(workplace, arms=("bm25", "frozen", "history"), seeds=3)) == {}


def test_an_arm_that_cannot_learn_is_refused_before_any_is_trained(workplace: Path) -> None:
    Path("data/filtered").mkdir(parents=True)
    write_questions([Question("q", "Is it?", answers=("yes",))], Path("data/filtered/questions.jsonl"))
    params = params_with(workplace, arms=("frozen", "rl_no_history", "infonce", "full"), seeds=1)
    told: list[str] = []
    with pytest.raises(CorpusError, match=r"^infonce: none of 1 training questions .*leave infonce out of"):
        train_each(params, lambda step, values: None, told.append)
    assert told == []
