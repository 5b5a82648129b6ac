"""GRPO of a language model by TRL: it learns, it resumes bit for bit, and it learns from its own tokens only."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from letters import OnePassage, save_letters, spell
from safetensors.torch import load_file

from harr.generation.local import Writer, load_model
from harr.methods import Agent, Lora
from harr.scoring.mix import Reward
from harr.setup import Setup
from harr.train import METHODS
from harr.train.agent import Game, asked, train
from harr.types import Question

QUESTIONS = [Question(f"q{number}", text) for number, text in enumerate(["q", "w", "e", "r"])]
PARAMS = Agent(
    method="agent",
    steps=12,
    questions_per_step=4,
    group_size=8,
    learning_rate=3e-2,
    episodes_per_pass=8,
    max_tokens=6,
    checkpoint_every=4,
    lora=None,
)


def nothing(step: int, values: object) -> None:
    """Log nowhere."""


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    folder = save_letters(tmp_path / "letters", spread=0.5)
    reward = Reward({"letters:share_of_a": 1.0})
    return Setup(QUESTIONS, spell, OnePassage(), None, reward, "letters", str(folder))  # type: ignore[arg-type]


ADAPTER = PARAMS.model_copy(update={"lora": Lora(rank=8, alpha=64), "learning_rate": 2e-2, "steps": 24})


@pytest.mark.parametrize("params", [PARAMS, ADAPTER], ids=["full", "lora"])
def test_the_model_learns_to_please(setup: Setup, tmp_path: Path, params: Agent) -> None:
    rows: list[object] = []
    history = train(params, setup, tmp_path / "out", tmp_path / "work", lambda step, row: rows.append(row), 0)
    rewards = [row["reward_mean"] for row in history]
    assert sum(rewards[:3]) / 3 < 0.15 < 0.4 < sum(rewards[-3:]) / 3
    assert rows == history and [row["step"] for row in history] == list(range(params.steps))
    assert {"loss", "entropy", "grad_norm", "own_tokens", "told_tokens", "cut_share", "gold_found"} <= set(history[0])
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert ("adapter_model.safetensors" if params.lora else "model.safetensors") in names and "harr.json" in names
    assert not any(path.suffix in {".bin", ".pt", ".pth"} for path in tmp_path.rglob("*"))


def test_a_killed_run_ends_with_the_same_weights(setup: Setup, tmp_path: Path) -> None:
    def kill(step: int, row: object) -> None:
        if step == 6:
            raise KeyboardInterrupt

    whole = train(PARAMS, setup, tmp_path / "whole", tmp_path / "a", nothing, 0)
    with pytest.raises(KeyboardInterrupt):
        train(PARAMS, setup, tmp_path / "parts", tmp_path / "b", kill, 0)
    assert not (tmp_path / "parts").exists()
    parts = train(PARAMS, setup, tmp_path / "parts", tmp_path / "b", nothing, 0)
    untimed = [[{**row, "seconds": 0.0} for row in rows] for rows in (whole, parts)]
    assert untimed[0] == untimed[1]
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_what_the_environment_said_has_no_gradient(setup: Setup, tmp_path: Path) -> None:
    """The gradient of the log-probability of a trace, masked as TRL masks it, vanishes at the told tokens."""
    model, tokenizer = load_model(setup.writer)
    game = Game(PARAMS, setup, Writer(model, tokenizer, name="letters"), seed=0)

    class Trainer:
        """As much of TRL's trainer as the game looks at."""

    trainer = Trainer()
    trainer.model = model  # type: ignore[attr-defined]
    rows = game([question.id for question in QUESTIONS for _ in range(8)], trainer)
    assert len({len(rows[name]) for name in ("prompt_ids", "completion_ids", "env_mask", "reward")}) == 1
    prompt, ids, own = rows["prompt_ids"][0], rows["completion_ids"][0], torch.tensor(rows["env_mask"][0])
    logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    logits.retain_grad()
    picked = logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0]
    (picked * own).sum().backward()
    assert (logits.grad[own == 0] == 0).all() and (logits.grad[own == 1] != 0).any()


def test_the_order_of_questions_follows_from_seed_and_step(setup: Setup) -> None:
    assert asked(PARAMS, QUESTIONS, 5, seed=1) == asked(PARAMS, QUESTIONS, 0, seed=1)[5 * 4 :]
    assert asked(PARAMS, QUESTIONS, 0, seed=1) != asked(PARAMS, QUESTIONS, 0, seed=2)


def test_the_method_has_its_name(setup: Setup, tmp_path: Path) -> None:
    one = PARAMS.model_copy(update={"steps": 1, "num_iterations": 2})
    history = METHODS["agent"](one, replace(setup, identity="other"), tmp_path / "out", tmp_path / "w", nothing, 0)
    assert len(history) == 1


def test_rewards_are_mixed_and_filtered_as_asked(setup: Setup) -> None:
    """Two terms that contradict one another: their plain mean is one half, and no episode is better in both."""
    terms = {"letters:share_of_a": 1.0, "letters:share_without_a": 3.0}
    model, tokenizer = load_model(setup.writer)
    learnt = {}
    for mix, filtered in (("weighted", False), ("uniform", False), ("weighted", True)):
        reward = Reward(terms, mix=mix, filter_by_mean=filtered)
        game = Game(PARAMS, replace(setup, reward=reward), Writer(model, tokenizer, name="letters"), seed=0)
        trainer = type("Trainer", (), {"model": model})
        learnt[mix, filtered] = game([question.id for question in QUESTIONS for _ in range(8)], trainer)["reward"]
    assert set(learnt["uniform", False]) == {0.5}
    assert len(set(learnt["weighted", False])) > 1
    pairs = list(zip(learnt["weighted", True], learnt["weighted", False], strict=True))
    assert all(one in (None, two) for one, two in pairs) and any(one is None for one, _ in pairs)
