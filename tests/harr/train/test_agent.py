"""GRPO of a language model by TRL: it learns, it resumes bit for bit, and it learns from its own tokens only."""

import math
from collections.abc import Generator as PyGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from letters import QUESTIONS, letters_setup, nothing
from safetensors.torch import load_file
from trl.trainer.grpo_trainer import GRPOTrainer

from harr.builders.methods import METHODS
from harr.io import progress
from harr.params.train import AgentParams
from harr.params.train_facts import LoraParams
from harr.rag.generation.local_model import LanguageModel, load_model
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train import agent
from harr.train.agent import AgentCallback, RolloutFunction, asked, train
from harr.train.agent_trainer import AgentTrainer
from harr.train.batch import reward_figures
from harr.train.record import plain
from harr.types import Episode, Generate, Outcome, Question, Request

PARAMS = AgentParams(
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


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return letters_setup(tmp_path / "letters")


def test_the_reasons_of_ill_formed_turns_are_counted(setup: Setup) -> None:
    outcomes = [Outcome("a", faults=("no query", "unknown tool", "no query")), Outcome("b", faults=("no query",))]
    episodes = [Episode(QUESTIONS[0], (), outcome) for outcome in outcomes * (PARAMS.group_size // 2)]
    scores = setup.reward.score(episodes)
    figures = reward_figures(PARAMS, setup, scores, setup.reward.totals_or_none(scores, 0), episodes, 0)
    half = PARAMS.group_size // 2
    assert figures["faults"] == {"no query": 3 * half, "unknown tool": half}


ADAPTER = PARAMS.model_copy(update={"lora": LoraParams(rank=8, alpha=64), "learning_rate": 2e-2, "steps": 24})


@pytest.mark.parametrize("params", [PARAMS, ADAPTER], ids=["full", "lora"])
def test_the_model_learns_to_please(setup: Setup, tmp_path: Path, params: AgentParams) -> None:
    rows: list[object] = []
    history = train(params, setup, tmp_path / "out", tmp_path / "work", lambda step, row: rows.append(row), 0)
    rewards = [row["reward_mean"] for row in history]
    assert sum(rewards[:3]) / 3 < 0.15 < 0.4 < sum(rewards[-3:]) / 3
    assert rows == [plain(row) for row in history] and [row["step"] for row in history] == list(range(params.steps))
    assert {"loss", "entropy", "grad_norm", "own_tokens", "told_tokens", "cut_share", "gold_found"} <= set(history[0])
    told = {"think_words", "answer_words", "invalid_share", "searches_mean", "episodes", "zero_std_share"}
    assert told <= set(history[0]), "what tells a healthy run"
    assert history[0]["reward_letters.share_of_a_mean"] == pytest.approx(history[0]["reward_mean"])
    assert history[0]["faults"] == {}, "spelling has no form"
    assert set(history[0]["quantiles"]) == {"total", "letters.share_of_a"}
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert ("adapter_model.safetensors" if params.lora else "model.safetensors") in names and "harr.json" in names
    assert not any(path.suffix in {".bin", ".pt", ".pth"} for path in tmp_path.rglob("*"))


def test_a_killed_run_ends_with_the_same_weights(setup: Setup, tmp_path: Path) -> None:
    def kill(step: int, row: object) -> None:
        if step == 3:
            raise KeyboardInterrupt

    params = PARAMS.model_copy(update={"steps": 5, "checkpoint_every": 2})
    whole = train(params, setup, tmp_path / "whole", tmp_path / "a", nothing, 0)
    with pytest.raises(KeyboardInterrupt) as killed:  # keeps all that the training held
        train(params, setup, tmp_path / "parts", tmp_path / "b", kill, 0)
    assert not (tmp_path / "parts").exists()
    assert killed.traceback and progress._Stop.loops == 0
    parts = train(params, setup, tmp_path / "parts", tmp_path / "b", nothing, 0)
    untimed = [[{**row, "seconds": 0.0, "play_seconds": 0.0} for row in rows] for rows in (whole, parts)]
    assert untimed[0] == untimed[1]
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_what_the_environment_said_has_no_gradient(setup: Setup, tmp_path: Path) -> None:
    """The gradient of the log-probability of a trace, masked as TRL masks it, vanishes at the told tokens."""
    model, tokenizer = load_model(setup.writer)
    game = RolloutFunction(PARAMS, setup, LanguageModel(model, tokenizer, name="letters"), seed=0)

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


def test_trl_gives_the_environments_tokens_no_loss_and_attends_to_them(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In TRL's own loss: which log-probabilities of a whole step have a gradient, and which tokens the model sees."""
    told: dict[str, Any] = {}
    seen: list[tuple[list[list[int]], list[list[int]], list[list[bool]]]] = []
    rows = RolloutFunction.rows

    def watch(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if kwargs.get("fused_lm_head"):  # TRL asks for log-probabilities in place of logits
            ids, mask = kwargs["input_ids"].tolist(), kwargs["attention_mask"].tolist()
            output.log_probs.register_hook(lambda grad: seen.append((ids, mask, grad.ne(0).tolist())))

    def load(*given: Any, **more: Any) -> tuple[Any, Any]:
        model, tokenizer = load_model(*given, **more)
        model.register_forward_hook(watch, with_kwargs=True)
        return model, tokenizer

    monkeypatch.setattr(agent, "load_model", load)
    monkeypatch.setattr(RolloutFunction, "rows", lambda *given: told.update(rows(*given)) or told)
    train(PARAMS.model_copy(update={"steps": 1}), setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    texts = [[*one, *two] for one, two in zip(told["prompt_ids"], told["completion_ids"], strict=True)]
    found, attended = set(), set()
    for ids, mask, moved in (row for batch in seen for row in zip(*batch, strict=True)):
        row = max((row for row, text in enumerate(texts) if ids[: len(text)] == text), key=lambda row: len(texts[row]))
        first = len(told["prompt_ids"][row]) - len(ids)  # the last value is that of the last token
        found |= {(mine, moved[first + place]) for place, mine in enumerate(told["env_mask"][row])}
        attended |= {(mine, mask[first + place]) for place, mine in enumerate(told["env_mask"][row])}
    assert {(1, True), (0, False)} <= found and (0, True) not in found
    assert attended == {(1, 1), (0, 1)}, "hiding what was found from the answer is bug 10 of R-Search's authors"


def test_what_has_no_effect_is_left_out_and_the_gradient_stays(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first gradient of TRL's own trainer and of ours, for every loss; a group of equal rewards is in the step."""
    gradient: list[torch.Tensor] = []
    tokens = {GRPOTrainer: 0, AgentTrainer: 0}

    def keep(callback: AgentCallback, *_: Any, **__: Any) -> None:
        weights = [weight for group in callback.learning.optimizer.param_groups for weight in group["params"]]
        gradient.append(torch.cat([weight.grad.flatten() for weight in weights]))

    def load(*given: Any, **more: Any) -> tuple[Any, Any]:
        def count(module: Any, args: Any, kwargs: Any) -> None:
            tokens[kind] += kwargs["input_ids"].numel() if kwargs.get("fused_lm_head") else 0

        model, tokenizer = load_model(*given, **more)
        model.register_forward_pre_hook(count, with_kwargs=True)
        return model, tokenizer

    monkeypatch.setattr(agent, "load_model", load)
    monkeypatch.setattr(AgentCallback, "on_pre_optimizer_step", keep)
    game = replace(setup, reward=Reward({"letters:share_of_a": 1.0}))
    for loss, kl_weight in (("dapo", 0.0), ("dapo", 0.1), ("grpo", 0.0), ("bnpo", 0.0), ("dr_grpo", 0.0)):
        params = PARAMS.model_copy(update={"steps": 1, "loss": loss, "kl_weight": kl_weight, "temperature": 0.7})
        tokens.update(dict.fromkeys(tokens, 0))
        for kind in (GRPOTrainer, AgentTrainer):
            monkeypatch.setattr(agent, "AgentTrainer", kind)
            folder = tmp_path / f"{loss}, {kl_weight}, {kind.__name__}"
            (row,) = train(params, game, folder / "out", folder / "work", nothing, 0)
        assert row["zero_std_share"] > 0, "a group without advantage"
        whole, lean = gradient[-2:]
        assert whole.norm() > 0 and torch.allclose(whole, lean, atol=1e-5 * float(whole.norm())), loss
        left_out = tokens[GRPOTrainer] - tokens[AgentTrainer]
        assert left_out > 0 if (loss, kl_weight) == ("dapo", 0.0) else left_out >= 0, loss


def test_bug_2_the_reference_is_that_of_the_question_whatever_its_place(setup: Setup) -> None:
    """Ids that look like row numbers, in another order: the judge reads each answer beside its own reference."""
    numbered = [replace(q, id=str(3 - i), answers=(f"gold of {q.text}",)) for i, q in enumerate(QUESTIONS)]
    seen: list[tuple[str, str]] = []

    def complete(requests: Sequence[Generate]) -> list[str]:
        for request in requests:
            question, gold, *_ = request.messages[1]["content"].splitlines()
            seen.append((question.removeprefix("Question: "), gold.removeprefix("Reference answers: ")))
        return ['{"score": 0.5}'] * len(requests)

    reward = Reward({"semantic": 1.0}, SimpleNamespace(complete=complete, usage=dict), mix="sum")
    model, tokenizer = load_model(setup.writer)
    given = replace(setup, questions=numbered, reward=reward)
    game = RolloutFunction(PARAMS, given, LanguageModel(model, tokenizer, name="letters"), seed=0)
    drawn = asked(PARAMS, numbered, 0, seed=1)[:4]
    rows = game([name for name in drawn for _ in range(8)], type("Trainer", (), {"model": model}))
    assert seen and all(gold == f'["gold of {text}"]' for text, gold in seen)
    assert rows["reward"].count(0.5) == len(seen) and game.figures["reward_semantic_mean"] > 0


def test_the_order_of_questions_follows_from_seed_and_step(setup: Setup) -> None:
    assert asked(PARAMS, QUESTIONS, 5, seed=1) == asked(PARAMS, QUESTIONS, 0, seed=1)[5 * 4 :]
    assert asked(PARAMS, QUESTIONS, 0, seed=1) != asked(PARAMS, QUESTIONS, 0, seed=2)


def test_the_method_has_its_name(setup: Setup, tmp_path: Path) -> None:
    one = PARAMS.model_copy(update={"steps": 1, "num_iterations": 2})
    history = METHODS["agent"].train(
        one, replace(setup, identity="other"), tmp_path / "out", tmp_path / "w", nothing, 0
    )
    assert len(history) == 1


def test_rewards_are_mixed_and_filtered_as_asked(setup: Setup) -> None:
    """Two terms that contradict one another: their plain mean is one half, and no episode is better in both."""
    terms = {"letters:share_of_a": 1.0, "letters:share_without_a": 3.0}
    model, tokenizer = load_model(setup.writer)
    learnt = {}
    for mix, filtered in (("weighted", False), ("uniform", False), ("weighted", True)):
        reward = Reward(terms, mix=mix, filter_by_mean=filtered)
        game = RolloutFunction(
            PARAMS, replace(setup, reward=reward), LanguageModel(model, tokenizer, name="letters"), seed=0
        )
        trainer = type("Trainer", (), {"model": model})
        learnt[mix, filtered] = game([question.id for question in QUESTIONS for _ in range(8)], trainer)["reward"]
    assert set(learnt["uniform", False]) == {0.5}
    assert len(set(learnt["weighted", False])) > 1
    pairs = list(zip(learnt["weighted", True], learnt["weighted", False], strict=True))
    assert all(one in (None, two) for one, two in pairs) and any(one is None for one, _ in pairs)


def test_bad_episodes_are_counted_and_survived(setup: Setup, tmp_path: Path) -> None:
    """A question without a reward, questions without gold, completions that the limit cut: training goes on."""
    reward = Reward({"letters:share_of_a_unless_q": 1.0})
    cut = PARAMS.model_copy(update={"steps": 1, "max_tokens": 1, "mask_cut": True})
    (row,) = train(cut, replace(setup, reward=reward), tmp_path / "out", tmp_path / "work", nothing, 0)
    assert row["without_reward"] == 8 and row["without_gold"] == 32 and row["gold_found"] == 0.0
    assert row["cut_share"] > 0.5 and all(map(math.isfinite, plain(row).values()))


def test_a_step_in_which_no_reward_applies_changes_nothing(setup: Setup, tmp_path: Path) -> None:
    game = replace(setup, questions=QUESTIONS[:1], reward=Reward({"letters:share_of_a_unless_q": 1.0}))
    one = PARAMS.model_copy(update={"steps": 1})
    (row,) = train(one, game, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert row["without_reward"] == 32 and row["reward_mean"] == 0.0 and row["grad_norm"] == 0.0
    before, after = (load_file(folder / "model.safetensors") for folder in (Path(setup.writer), tmp_path / "out"))
    assert all(torch.equal(before[name], after[name]) for name in after)


def test_a_prompt_without_room_never_yields_an_empty_completion(setup: Setup) -> None:
    def once(question: Question) -> PyGenerator[Request, Any, Outcome]:
        answer: str = yield Generate(prompt=question.text, stop=("t",))
        return Outcome(answer)

    model, tokenizer = load_model(setup.writer)
    game = RolloutFunction(
        PARAMS, replace(setup, pipeline=once), LanguageModel(model, tokenizer, name="letters"), seed=0
    )
    long = replace(game.setup, questions=[Question("long", "b" * 60), *QUESTIONS])
    game.setup = long
    rows = game(["long"] * 8 + ["q0"] * 8, type("Trainer", (), {"model": model}))
    assert all(rows["completion_ids"]) and not any(map(sum, rows["env_mask"][:8]))
    assert [len(ids) for ids in rows["completion_ids"]] == list(map(len, rows["env_mask"]))
    assert game.figures["without_room"] == 8
