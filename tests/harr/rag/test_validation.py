"""Validation during a retriever's training: it changes nothing learnt, misses no point, and chooses the weights."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from letters import nothing
from safetensors.torch import load_file

from harr.builders.methods import METHODS
from harr.corpus.passages import Passages
from harr.embed.encoder import Encoder
from harr.evaluate.summary import HEADLINES
from harr.io.files import read_json
from harr.params.loop import CheckpointParams, OptimizerParams
from harr.params.train import GRPOParams, PolicyParams, PPOParams, PQNParams
from harr.params.train_facts import LoraParams, ValidationParams
from harr.rag.pipelines.pick import pick
from harr.rag.policies.encoder_adapter import load_adapter
from harr.rag.policies.two_tower import TwoTowerPolicy
from harr.rag.rollout import play
from harr.rag.setup import Setup
from harr.rag.validation import LEADING, Validation, figures, points
from harr.types import Episode, Log, Outcome, Question

COMMON: dict[str, Any] = {
    "steps": 5,
    "questions_per_step": 4,
    "group_size": 4,
    "optimizer": OptimizerParams(learning_rate=1e-3),
    "states_per_pass": 32,
    "checkpoints": CheckpointParams(every=2),
    "lora": LoraParams(rank=4, alpha=8),
}
PARAMS: dict[str, PolicyParams | PQNParams] = {
    "grpo": GRPOParams(method="grpo", **COMMON),
    "ppo": PPOParams(method="ppo", **COMMON),
    "pqn": PQNParams(method="pqn", **COMMON),
}
"""Methods by what learns: an encoder, a head next to it, two towers."""


@pytest.fixture
def game(setup: Setup, corpus, tiny: str) -> Callable[[str], Setup]:  # type: ignore[no-untyped-def]
    """A function that makes a method's untrained corpus game: twelve towns to learn from, eight to validate with."""

    def make(method: str) -> Setup:
        encoder = partial(Encoder, tiny, max_tokens=64)
        if method == "pqn":
            policy: Any = TwoTowerPolicy(
                states=encoder(),
                actions=encoder(),
                passages=Passages.open(corpus.folder / "corpus"),
                mode="none",
                temperature=0.1,
                max_tokens=32,
                sampling=torch.Generator(),
            )
        else:
            policy = replace(setup.policy, encoder=encoder())
        questions = list(setup.questions)
        return replace(setup, questions=questions[:12], validation=questions[12:], retriever=policy)

    return make


def trained(setup: Setup, method: str, place: Path, log: Log = nothing, **changes: Any) -> list[dict[str, Any]]:
    params = PARAMS[method].model_copy(update=changes)
    return METHODS[method].train(params, setup, place / "adapter", place / "work", log, 3)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a history without clock times."""

    def drop_seconds(values: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in values.items() if not name.endswith("seconds")}
        return {name: drop_seconds(value) if isinstance(value, dict) else value for name, value in kept.items()}

    return [drop_seconds(row) for row in history]


@pytest.mark.parametrize(("method", "killed_after"), [("grpo", 0), ("ppo", 3), ("pqn", 2)])
def test_what_is_learnt_is_the_same_with_and_without_and_after_a_kill(
    method: str, killed_after: int, game: Callable[[str], Setup], tmp_path: Path
) -> None:
    logged: list[tuple[int, str]] = []

    def log(step: int, values: Any) -> None:
        logged.extend((step, name) for name in values if name.startswith("validation."))

    def kill(step: int, values: Any) -> None:
        if step == killed_after and ("validation.recall" in values) == (step % 2 == 0):
            raise KeyboardInterrupt

    plain = trained(game(method), method, tmp_path / "plain")
    watched = trained(game(method), method, tmp_path / "watched", log, validation=ValidationParams(every=2))
    with pytest.raises(KeyboardInterrupt):
        trained(game(method), method, tmp_path / "killed", kill, validation=ValidationParams(every=2))
    resumed = trained(game(method), method, tmp_path / "killed", validation=ValidationParams(every=2))
    assert timeless(resumed) == timeless(watched), "no point is repeated or lost"
    bare = [{k: v for k, v in row.items() if not k.startswith("validation")} for row in watched]
    assert timeless(bare) == timeless(plain) and not points(plain)
    expected = weights(tmp_path / "plain/adapter")
    for name in ("watched", "killed"):
        torch.testing.assert_close(weights(tmp_path / name / "adapter"), expected, rtol=0, atol=0)
    assert [point["step"] for point in points(watched)] == [0, 2, 4, 5]
    assert all(point["questions"] == 8 and point["seconds"] > 0 for point in points(watched))
    assert [step for step, name in logged if name == "validation.recall"] == [0, 2, 4, 5]
    assert {name for _, name in logged} >= {"validation.all_gold", "validation.reward", "validation.seconds"}


def test_the_last_point_is_what_the_exported_weights_are_evaluated_at(
    game: Callable[[str], Setup], tiny: str, tmp_path: Path
) -> None:
    setup = game("grpo")
    before, *_, last = points(trained(setup, "grpo", tmp_path, validation=ValidationParams(every=2), steps=8))
    encoder = Encoder(tiny, max_tokens=64)
    load_adapter(encoder, tmp_path / "adapter")
    policy = replace(setup.policy, encoder=encoder, sampling=None)
    point = figures(play(setup.validation, partial(pick, picks=1), policy, None), setup.reward)
    assert point == {name: last[name] for name in point} and point["recall"] > before["recall"]


@pytest.mark.parametrize("method", ["grpo", "pqn"])
def test_the_best_weights_are_kept_where_they_are_asked_for(
    method: str, game: Callable[[str], Setup], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validation is best after step 4; a run killed after step 6 resumes and still finds that."""
    found = {0: 0.95, 2: 0.5, 4: 0.9, 6: 0.7, 8: 0.6}

    def kill(step: int, values: Any) -> None:
        if step == 6:
            raise KeyboardInterrupt

    counts = {"questions": 8.0, "seconds": 0.0}
    monkeypatch.setattr(Validation, "_validate", lambda self, done: {"recall": found[done]} | counts)
    asked = {"steps": 8, "validation": ValidationParams(every=2, keep="best")}
    with pytest.raises(KeyboardInterrupt):
        trained(game(method), method, tmp_path, kill, **asked)
    trained(game(method), method, tmp_path, **asked)
    (kept,) = (tmp_path / "work").glob("*/checkpoint-000004")
    exported, stored = weights(tmp_path / "adapter"), load_file(kept / "weights.safetensors")
    assert all(torch.equal(stored[name], exported[name.replace(".default.", ".")]) for name in stored)
    facts = {"kept_step": 4, "kept_by": "recall", "kept_value": 0.9, "kept_questions": 8}
    assert facts.items() <= read_json(tmp_path / "adapter/harr.json").items()
    said = "keeping the weights after step 4: validation recall 0.900 (0.950 after step 0, 0.600 after step 8)"
    assert said in capsys.readouterr().out
    trained(game(method), method, tmp_path / "last", **asked | {"validation": ValidationParams(every=2)})
    assert "kept_step" not in read_json(tmp_path / "last/adapter/harr.json")
    last = weights(tmp_path / "last/adapter")
    assert any(not torch.equal(last[name], exported[name]) for name in last)


def test_points_are_compared_by_the_metric_that_leads_in_evaluation(setup: Setup) -> None:
    """Answers count if the pipeline gives them."""
    assert [name for name in HEADLINES if name in LEADING] == [name for name in LEADING if name != "reward"]
    question = Question("q", "Who?", answers=("Ada",))
    answered = figures([Episode(question, (), Outcome("Ada")), Episode(question)], setup.reward)
    assert (answered["answer_em"], answered["answer_f1"]) == (0.5, 0.5)
    assert "answer_em" not in figures([Episode(question)], setup.reward), "it gives none by design"
