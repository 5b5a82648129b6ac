"""What a Learner does for every method: it resumes bit for bit, guards, keeps the best, and counts honestly.

Of three methods that differ in what learns beside the encoder: nothing (GRPO), a head (PPO), a second tower (PQN).
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from letters import nothing
from runs import go_on, killed_at, same, timeless, weights
from transformers.modeling_layers import GradientCheckpointingLayer

from harr.builders.methods import METHODS
from harr.errors import CorpusError
from harr.params.baselines import InfoNCEParams, ReplugParams
from harr.params.train import GRPOParams, PPOParams, PQNParams
from harr.params.train_facts import LoraParams
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train.grpo import train

COMMON: dict[str, Any] = {
    "steps": 4,
    "questions_per_step": 6,
    "group_size": 4,
    "learning_rate": 1e-3,
    "states_per_pass": 4,
    "checkpoint_every": 2,
    "lora": LoraParams(rank=8, alpha=16),
}
GRPO = GRPOParams(method="grpo", **COMMON)
KINDS = {
    "grpo": GRPO,
    "ppo": PPOParams(method="ppo", kl_weight=1e-3, **COMMON),
    "pqn": PQNParams(method="pqn", **COMMON),
    "pqn-full": PQNParams(method="pqn", **COMMON | {"lora": None}),
}


@pytest.fixture
def game(fresh: Callable[[], Setup], towers: Callable[..., Setup]) -> Callable[[str], Setup]:
    """The untrained game of a kind."""
    return lambda kind: towers("relative", picks=2) if kind.startswith("pqn") else fresh()


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_ends_with_the_same_weights(kind: str, game: Callable[[str], Setup], tmp_path: Path) -> None:
    def run(name: str, log: Any) -> list[dict[str, Any]]:
        return METHODS[kind[:4].strip("-")].train(
            KINDS[kind], game(kind), tmp_path / name, tmp_path / f"w-{name}", log, 1
        )

    whole = run("whole", nothing)
    assert timeless(whole) == timeless(go_on(lambda log: run("parts", log), 2))
    found = weights(tmp_path / "whole")
    assert found.keys() == weights(tmp_path / "parts").keys() and same(found, weights(tmp_path / "parts"))
    assert all(0 < row["play_seconds"] < row["seconds"] for row in whole)
    assert all(("without_advantage" in row) == (kind == "grpo") for row in whole), "others compare no rollouts"
    assert not any("head" in name or "critic" in name for name in found), "what learns beside is not exported"


def test_a_run_with_other_parameters_is_told_what_differs(
    fresh: Callable[[], Setup], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(log: Any, rate: float = 1e-3, seed: int = 0) -> str:
        params = GRPO.model_copy(update={"steps": 2, "checkpoint_every": 1, "learning_rate": rate})
        train(params, fresh(), tmp_path / "adapter", tmp_path / "work", log, seed)
        return capsys.readouterr().out

    with pytest.raises(CorpusError, match="holds no question"):
        train(GRPO, replace(fresh(), questions=[]), tmp_path / "adapter", tmp_path / "work", nothing, 0)
    with pytest.raises(KeyboardInterrupt):
        run(killed_at(1))
    assert "is of other parameters (params.learning_rate: 0.001, now 0.0001); it is kept" in run(nothing, 1e-4)
    assert run(nothing) == "resuming train at step 1/2 (50.0%)\n", "the old one can still go on"
    assert run(nothing, seed=1) == "", "what was published is finished, and another arm begins"


def test_a_collapsed_run_stops_and_keeps_its_best_checkpoint(
    fresh: Callable[[], Setup], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A huge learning rate ruins the policy; what is exported is the adapter of the best step."""
    changes = {"steps": 12, "learning_rate": 3.0, "warmup_steps": 0, "checkpoint_every": 1, "guard_window": 1}
    wild = GRPO.model_copy(update=changes)
    history = train(wild, fresh(), tmp_path / "adapter", tmp_path / "work", nothing, 0)
    assert len(history) < wild.steps
    assert "keeping the checkpoint of step" in capsys.readouterr().out
    best = max(range(len(history)), key=lambda i: (history[i]["reward_mean"], i)) + 1
    (kept,) = (tmp_path / "work").glob(f"*/checkpoint-{best:06d}")
    assert same(weights(kept), weights(tmp_path / "adapter"))
    again = train(wild, fresh(), tmp_path / "adapter", tmp_path / "work", nothing, 0)
    assert again == history, "and stays stopped"


def test_a_run_in_which_no_group_differs_stops_and_says_so(
    fresh: Callable[[], Setup], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reward is the same whatever is found; a run that was killed on the way comes to the same verdict."""
    params = GRPO.model_copy(update={"guard_window": 3})

    def run(log: Any) -> list[dict[str, Any]]:
        alike = replace(fresh(), reward=Reward({"letters:half": 1.0}))
        return train(params, alike, tmp_path / "adapter", tmp_path / "work", log, 0)

    history = go_on(run, 2)
    assert [row["without_advantage"] for row in history] == [1.0] * 3 and history[-1]["zero_std_share"] == 1.0
    said = "train stopped after step 3: no group's rewards differed in the last 3 steps, so nothing is learnt; "
    told = capsys.readouterr().out
    assert "resuming train at step 2/4" in told and said in told and "; keeping the checkpoint of step 3\n" in told
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
    assert run(nothing) == history and said in capsys.readouterr().out, "and stays stopped"


@pytest.mark.parametrize("kind", ["grpo", "pqn-full"])
def test_gradient_checkpointing_changes_no_gradient(kind: str, game: Callable[[str], Setup], tmp_path: Path) -> None:
    norms = []
    for spared in (False, True):
        one, own = KINDS[kind].model_copy(update={"steps": 1, "gradient_checkpointing": spared}), game(kind)
        (row,) = METHODS[one.method].train(one, own, tmp_path / f"{spared}", tmp_path / f"work-{spared}", nothing, 0)
        norms.append(row["grad_norm"])
        for encoder in own.policy.encoders:
            layers = [part for part in encoder.model.modules() if isinstance(part, GradientCheckpointingLayer)]
            assert layers and all(layer.gradient_checkpointing == spared for layer in layers)
            assert not spared or all(layer.training for layer in layers)
    assert norms[1] == pytest.approx(norms[0], rel=1e-4) and norms[0] > 0


@pytest.mark.parametrize("kind", ["grpo", "ppo"])
def test_a_warm_start_is_infonce_and_resumes_before_and_after(
    kind: str, game: Callable[[str], Setup], tmp_path: Path
) -> None:
    """The same weights as the arm trained so long, kept beside what the rewards made of them."""
    contrast = InfoNCEParams(learning_rate=2e-3, hard_negatives=5)
    more = {"steps": 2, "warm_start": 3, "infonce": contrast, "checkpoint_every": 1}
    params = KINDS[kind].model_copy(update=more)

    def run(name: str, log: Any) -> list[dict[str, Any]]:
        return METHODS[kind].train(params, game(kind), tmp_path / name, tmp_path / f"w-{name}", log, 1)

    assert [row["phase"] for row in run("whole", nothing)] == [-1.0, -1.0, -1.0, 0.0, 0.0]
    go_on(lambda log: run("parts", log), 1, 3, 4)
    alone = params.model_copy(update={"steps": 3, "warm_start": 0})
    METHODS["infonce"].train(alone, game(kind), tmp_path / "alone", tmp_path / "w", nothing, 1)
    whole, parts, warm, alone_ = map(weights, (tmp_path / n for n in ("whole", "parts", "whole/warm_start", "alone")))
    assert same(whole, parts) and len(whole) == len(parts) == 2 * len(warm), "with the folder warm_start in each"
    assert same(warm, alone_) and not same(whole, warm)


def test_a_critic_with_an_encoder_of_its_own_learns_and_resumes(fresh: Callable[[], Setup], tmp_path: Path) -> None:
    """Its weights are in the checkpoints and not in the export, and the policy's encoder does not move by it."""
    changes = {"critic": "encoder", "kl_estimator": "k3", "value_learning_rate": 3e-3, "steps": 3, "group_size": 1}
    params = KINDS["ppo"].model_copy(update=changes)

    def run(name: str, log: Any = nothing, **more: Any) -> list[dict[str, Any]]:
        own = params.model_copy(update=more)
        return METHODS["ppo"].train(own, fresh(), tmp_path / name, tmp_path / f"w-{name}", log, 1)

    whole = run("whole")
    assert timeless(whole) == timeless(go_on(lambda log: run("parts", log), 2))
    assert all(row["kl"] >= 0 for row in whole)
    (often,) = run("often", steps=1, num_iterations=8)
    assert often["value_loss"] < 0.95 * whole[0]["value_loss"], "of one and the same batch"
    assert not any("critic" in path.name for path in (tmp_path / "whole").iterdir())


def test_a_baseline_has_a_rate_of_its_own() -> None:
    assert GRPO.of_baseline(GRPO.infonce).learning_rate == 1e-3
    assert GRPO.of_baseline(InfoNCEParams(learning_rate=1e-4)).learning_rate == 1e-4
    warm = GRPO.model_copy(update={"warm_start": 8})
    assert warm.of_baseline(warm.infonce).steps == 12, "as many steps as full has in all"
    assert warm.of_baseline(warm.infonce).warm_start == 0
    rival = warm.of_baseline(ReplugParams(learning_rate=1e-4))
    assert (rival.steps, rival.warm_start, rival.learning_rate, rival.warm_rate) == (4, 8, 1e-4, 1e-3)
