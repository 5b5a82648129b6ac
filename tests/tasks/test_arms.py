"""Which runs the trained arms have, and where they lie."""

from pathlib import Path

from harr.params import Params
from tasks.arms import trained_runs


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
