"""Runs of the agent that are stopped, collapse, break, or outgrow their model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from letters import OnePassage, save_letters, spell
from safetensors.torch import load_file

from harr import progress
from harr.methods import Agent
from harr.scoring.mix import Reward
from harr.setup import Setup
from harr.train import agent
from harr.train.agent import train
from harr.types import Question

QUESTIONS = [Question(f"q{number}", text) for number, text in enumerate(["q", "w", "e", "r"])]
PARAMS = Agent(
    method="agent",
    steps=12,
    questions_per_step=2,
    group_size=4,
    learning_rate=3e-2,
    episodes_per_pass=8,
    max_tokens=6,
    checkpoint_every=5,
    guard_window=2,
    guard_drop=0.5,
    lora=None,
)


def nothing(step: int, values: object) -> None:
    """Log nowhere."""


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """What a run, or a checkpoint, has trained."""
    return load_file(next(folder.glob("*weights.safetensors"), folder / "model.safetensors"))


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    """Whether they are equal bit for bit; a checkpoint has what is trained only."""
    return all(torch.equal(one[name], two[name]) for name in one.keys() & two.keys()) and bool(one.keys() & two.keys())


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    folder = save_letters(tmp_path / "letters", spread=0.5)
    reward = Reward({"letters:share_of_a": 1.0})
    return Setup(QUESTIONS, spell, OnePassage(), None, reward, "letters", writer=str(folder))  # type: ignore[arg-type]


def test_a_stopped_run_that_collapses_later_keeps_its_best_weights(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 7 is the best, and is saved because the run was stopped there; the reward falls after it went on."""
    rewards = [0.5, 0.5, 0.6, 0.6, 0.9, 0.95, 0.99, 0.3, 0.1, 0.1, 0.05, 0.05]
    best: dict[str, torch.Tensor] = {}
    figures = agent.reward_figures

    class Stopped(Exception):
        pass

    def leave() -> None:
        raise Stopped

    def falling(*given: Any) -> dict[str, Any]:
        return figures(*given) | {"reward_mean": rewards[given[-1]]}

    def stop(step: int, values: object) -> None:
        if step == 6:
            progress.ask_to_stop(leave)

    monkeypatch.setattr(agent, "reward_figures", falling)
    with monkeypatch.context() as asked:
        asked.setattr(progress._Stop, "leave", None)
        with pytest.raises(Stopped):
            train(PARAMS, setup, tmp_path / "out", tmp_path / "work", stop, 0)
    (saved,) = (tmp_path / "work").glob("*/checkpoint-000007")
    best = weights(saved)
    history = train(PARAMS, setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert len(history) == 9 and same(best, weights(tmp_path / "out"))
    (last,) = (tmp_path / "work").glob("*/checkpoint-000009")
    assert not same(best, weights(last)), "the run did learn on"
