"""The runs of trained arms, and their folders."""

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harr.builders.methods import Method
from harr.corpus.passages import write_questions
from harr.errors import CorpusError
from harr.params import Params
from harr.params.pipeline import PickParams
from harr.params.reward import RewardParams
from harr.types import Question
from tasks.arms import train_each
from tasks.trained_runs import trained_runs


def params_with(workplace: Path, **changes: object) -> Params:
    params = Params.load()
    return params.model_copy(update={"seed": 4, "evaluate": params.evaluate.model_copy(update=changes)})


def test_every_trained_arm_has_a_folder_per_seed_and_the_first_trained_is_the_adapter(workplace: Path) -> None:
    runs = trained_runs(params_with(workplace, arms=("bm25", "frozen", "infonce", "trained"), seeds=2))
    assert runs == {
        "infonce": [Path("models/arms/infonce-4"), Path("models/arms/infonce-5")],
        "trained": [Path("models/adapter"), Path("models/arms/trained-5")],
    }


def test_untrained_arms_have_none(workplace: Path) -> None:
    assert trained_runs(params_with(workplace, arms=("bm25", "frozen", "history"), seeds=3)) == {}


@pytest.mark.parametrize(("changes", "own"), [({}, True), ({"keep": "all"}, False)])
def test_an_arm_without_history_learns_from_questions_of_its_own(
    changes: dict[str, object], own: bool, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are filtered once for all seeds, by rollouts without history; other arms use those of `trained`."""
    base = params_with(workplace, arms=("rl_no_history", "infonce", "trained"), seeds=2)
    params = base.model_copy(update={"filter": base.filter.model_copy(update=changes)})
    opened: list[tuple[str, bool]] = []
    filtered: list[bool] = []

    @contextmanager
    def setup(params: Params, places: object, questions: Path, *, history: bool = True, **named: object) -> Any:
        opened.append((questions.parent.name, history))
        yield SimpleNamespace(identity=f"{questions}{history}", questions=[1, 2, 3], history=history)

    def prepare(section: object, setup: Any, out: Path, *others: object) -> dict[str, float]:
        out.mkdir(parents=True)
        filtered.append(setup.history)
        return {}

    def learn(params: object, setup: Any, out: Path, *others: object) -> list[dict[str, float]]:
        return [{"reward_mean": 1.0, "zero_std_share": 0.25}]

    method = Method(learn, prepare)  # type: ignore[arg-type]
    monkeypatch.setattr("harr.builders.setup.open_setup", setup)
    monkeypatch.setattr("harr.builders.methods.METHODS", {"grpo": method, "infonce": method})
    figures, notes = train_each(params, lambda step, values: None, lambda text: None)
    assert filtered == ([False] if own else [])
    trained = {history: folder for folder, history in opened if folder != "questions"}
    assert trained[True] == "filtered" and (trained[False] != "filtered") == own
    assert figures["rl_no_history-4.zero_std_share"] == 0.25 and figures["infonce-5.questions"] == 3.0
    assert notes["trained-5"] == {"zero_std_share": 0.25, "questions": 3.0} and "trained-4" not in notes


@pytest.mark.fault(39)
def test_an_arm_that_cannot_learn_is_refused_before_any_is_trained(workplace: Path) -> None:
    Path("data/filtered").mkdir(parents=True)
    write_questions([Question("q", "Is it?", answers=("yes",))], Path("data/filtered/questions.jsonl"))
    params = params_with(workplace, arms=("frozen", "rl_no_history", "infonce", "trained"), seeds=1)
    lines: list[str] = []
    with pytest.raises(CorpusError, match=r"^infonce: none of 1 training questions .*leave infonce out of"):
        train_each(params, lambda step, values: None, lines.append)
    assert lines == []


def test_what_learns_from_gold_asks_no_reader(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = params_with(workplace, arms=("infonce", "rl_no_history", "trained"), seeds=1)
    picks = {"pipeline": PickParams(name="pick", reader=True), "reward": RewardParams(terms={"answer_f1": 1.0})}
    params = base.model_copy(update=picks | {"filter": base.filter.model_copy(update={"keep": "all"})})
    opened: list[tuple[bool, list[str]]] = []

    @contextmanager
    def setup(params: Any, *others: object, **named: object) -> Any:
        opened.append((params.pipeline.reader, list(params.reward.terms)))
        yield SimpleNamespace(questions=[1, 2, 3])

    def learn(*others: object) -> list[dict[str, float]]:
        return [{"reward_mean": 1.0, "zero_std_share": 0.25}]

    made = {"infonce": Method(learn, rewarded=False), "rl_no_history": Method(learn)}
    monkeypatch.setattr("harr.builders.setup.open_setup", setup)
    monkeypatch.setattr("harr.builders.methods.arm_method", lambda params, name: (made[name], params.train))
    train_each(params, lambda step, values: None, print)
    assert opened == [(False, ["recall"]), (True, ["answer_f1"])]
