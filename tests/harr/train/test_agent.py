"""GRPO of a language model by TRL: it learns only from its own tokens, and rewards are counted correctly."""

import math
from collections.abc import Generator as PyGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from letters import AGENT, QUESTIONS, letters_setup, nothing
from runs import same, weights
from trl.trainer.grpo_trainer import GRPOTrainer

from harr.params.loop import OptimizerParams
from harr.params.train import AgentParams
from harr.params.train_facts import LoraParams
from harr.rag.generation.local_model import LanguageModel, load_model
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train import agent
from harr.train.agent import AgentCallback, RolloutFunction, question_ids, train
from harr.train.agent_trainer import AgentTrainer
from harr.train.batch import reward_figures
from harr.train.record import plain_figures
from harr.types import Episode, Generate, Outcome, Question, Request

ONE = AGENT.model_copy(update={"steps": 1})
ADAPTER = AGENT.model_copy(
    update={"lora": LoraParams(rank=8, alpha=64), "optimizer": OptimizerParams(learning_rate=3e-2), "steps": 16}
)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return letters_setup(tmp_path / "letters")


def rollouts(setup: Setup, names: Sequence[str]) -> tuple[dict[str, Any], RolloutFunction]:
    """Return TRL's inputs for these questions, and the game that played them."""
    model, tokenizer = load_model(setup.language_model)
    game = RolloutFunction(AGENT, setup, LanguageModel(model, tokenizer, name="letters"), seed=0)
    return game([name for name in names for _ in range(8)], SimpleNamespace(model=model)), game


def test_the_reasons_of_ill_formed_turns_are_counted(setup: Setup) -> None:
    outcomes = [Outcome("a", faults=("no query", "unknown tool", "no query")), Outcome("b", faults=("no query",))]
    episodes = [Episode(QUESTIONS[0], (), outcome) for outcome in outcomes * 4]
    scores = setup.reward.score(episodes)
    figures = reward_figures(AGENT, setup, scores, setup.reward.totals_or_none(scores, 0), episodes, 0)
    assert figures["faults"] == {"no query": 12, "unknown tool": 4}


@pytest.mark.parametrize("params", [AGENT, ADAPTER], ids=["full", "lora"])
def test_the_model_learns_to_please(setup: Setup, tmp_path: Path, params: AgentParams) -> None:
    rows: list[object] = []
    history = train(params, setup, tmp_path / "out", tmp_path / "work", lambda step, row: rows.append(row), 0)
    rewards = [row["reward_mean"] for row in history]
    assert sum(rewards[:3]) / 3 < 0.15 < 0.4 < sum(rewards[-3:]) / 3
    assert rows == [plain_figures(row) for row in history] and [row["step"] for row in history] == list(
        range(params.steps)
    )
    keys = {"loss", "entropy", "grad_norm", "own_tokens", "told_tokens", "cut_share", "gold_found", "think_words"}
    keys |= {"answer_words", "invalid_share", "searches_mean", "episodes", "zero_std_share"}
    assert keys <= set(history[0]), "what shows a healthy run"
    assert history[0]["reward_letters.share_of_a_mean"] == pytest.approx(history[0]["reward_mean"])
    assert history[0]["faults"] == {}, "spelling has no form"
    assert set(history[0]["quantiles"]) == {"total", "letters.share_of_a"}
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert ("adapter_model.safetensors" if params.lora else "model.safetensors") in names and "harr.json" in names
    assert not any(path.suffix in {".bin", ".pt", ".pth"} for path in tmp_path.rglob("*"))


def test_trl_gives_the_environments_tokens_no_loss_and_attends_to_them(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In TRL's own loss: which log-probabilities of a whole step have a gradient, and which tokens the model sees."""
    step_rows: dict[str, Any] = {}
    seen: list[tuple[list[list[int]], list[list[int]], list[list[bool]]]] = []
    rows = RolloutFunction.rows

    def watch(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if kwargs.get("fused_lm_head"):  # TRL asks for log-probabilities instead of logits
            ids, mask = kwargs["input_ids"].tolist(), kwargs["attention_mask"].tolist()
            output.log_probs.register_hook(lambda grad: seen.append((ids, mask, grad.ne(0).tolist())))

    def load(*given: Any, **more: Any) -> tuple[Any, Any]:
        model, tokenizer = load_model(*given, **more)
        model.register_forward_hook(watch, with_kwargs=True)
        return model, tokenizer

    monkeypatch.setattr(agent, "load_model", load)
    monkeypatch.setattr(RolloutFunction, "rows", lambda *given: step_rows.update(rows(*given)) or step_rows)
    train(ONE, setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    texts = [[*one, *two] for one, two in zip(step_rows["prompt_ids"], step_rows["completion_ids"], strict=True)]
    found, attended = set(), set()
    for ids, mask, moved in (row for batch in seen for row in zip(*batch, strict=True)):
        row = max((row for row, text in enumerate(texts) if ids[: len(text)] == text), key=lambda row: len(texts[row]))
        first = len(step_rows["prompt_ids"][row]) - len(ids)  # the last value belongs to the last token
        found |= {(mine, moved[first + place]) for place, mine in enumerate(step_rows["env_mask"][row])}
        attended |= {(mine, mask[first + place]) for place, mine in enumerate(step_rows["env_mask"][row])}
    assert {(1, True), (0, False)} <= found and (0, True) not in found
    assert attended == {(1, 1), (0, 1)}, "hiding what was found from the answer is bug 10 of R-Search's authors"


def test_what_has_no_effect_is_left_out_and_the_gradient_stays(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first gradient of TRL's own trainer equals ours for every loss; one group has equal rewards."""
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
        params = ONE.model_copy(update={"loss": loss, "kl_weight": kl_weight, "temperature": 0.7})
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
    """Ids look like row numbers in another order: the judge sees each answer with its own reference."""
    numbered = [replace(q, id=str(3 - i), answers=(f"gold of {q.text}",)) for i, q in enumerate(QUESTIONS)]
    seen: list[tuple[str, str]] = []

    def complete(requests: Sequence[Generate]) -> list[str]:
        for request in requests:
            question, gold, *_ = request.messages[1]["content"].splitlines()
            seen.append((question.removeprefix("Question: "), gold.removeprefix("Reference answers: ")))
        return ['{"score": 0.5}'] * len(requests)

    reward = Reward({"semantic": 1.0}, SimpleNamespace(complete=complete, usage=dict), mix="sum")
    given = replace(setup, questions=numbered, reward=reward)
    rows, game = rollouts(given, question_ids(AGENT, numbered, 0, seed=1)[:4])
    assert seen and all(gold == f'["gold of {text}"]' for text, gold in seen)
    assert rows["reward"].count(0.5) == len(seen) and game.figures["reward_semantic_mean"] > 0


def test_the_order_of_questions_follows_from_seed_and_step(setup: Setup) -> None:
    assert question_ids(AGENT, QUESTIONS, 5, seed=1) == question_ids(AGENT, QUESTIONS, 0, seed=1)[5 * 4 :]
    assert question_ids(AGENT, QUESTIONS, 0, seed=1) != question_ids(AGENT, QUESTIONS, 0, seed=2)


def test_rewards_are_mixed_and_filtered_as_asked(setup: Setup) -> None:
    """Two contradictory terms: their plain mean is one half, and no episode is better in both."""
    terms = {"letters:share_of_a": 1.0, "letters:share_without_a": 3.0}
    learnt = {}
    for mix, filtered in (("weighted", False), ("uniform", False), ("weighted", True)):
        game = replace(setup, reward=Reward(terms, mix=mix, filter_by_mean=filtered))
        learnt[mix, filtered] = rollouts(game, [question.id for question in QUESTIONS])[0]["reward"]
    assert set(learnt["uniform", False]) == {0.5}
    assert len(set(learnt["weighted", False])) > 1
    pairs = list(zip(learnt["weighted", True], learnt["weighted", False], strict=True))
    assert all(one in (None, two) for one, two in pairs) and any(one is None for one, _ in pairs)


def test_bad_episodes_are_counted_and_survived(setup: Setup, tmp_path: Path) -> None:
    """A question without a reward, questions without gold, truncated completions: training continues."""
    reward = Reward({"letters:share_of_a_unless_q": 1.0})
    cut = ONE.model_copy(update={"max_tokens": 1})
    (row,) = train(cut, replace(setup, reward=reward), tmp_path / "out", tmp_path / "work", nothing, 0)
    assert row["without_reward"] == 8 and row["without_gold"] == 32 and row["gold_found"] == 0.0
    assert row["cut_share"] > 0.5 and all(map(math.isfinite, plain_figures(row).values()))


def test_a_step_in_which_no_reward_applies_changes_nothing(setup: Setup, tmp_path: Path) -> None:
    game = replace(setup, questions=QUESTIONS[:1], reward=Reward({"letters:share_of_a_unless_q": 1.0}))
    (row,) = train(ONE, game, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert row["without_reward"] == 32 and row["reward_mean"] == 0.0 and row["grad_norm"] == 0.0
    before, after = weights(Path(setup.language_model)), weights(tmp_path / "out")
    assert before.keys() == after.keys() and same(before, after)


def test_a_prompt_without_room_never_yields_an_empty_completion(setup: Setup) -> None:
    def once(question: Question) -> PyGenerator[Request, Any, Outcome]:
        answer: str = yield Generate(prompt=question.text, stop=("t",))
        return Outcome(answer)

    questions = [Question("long", "b" * 60), *QUESTIONS]
    rows, game = rollouts(replace(setup, questions=questions, pipeline=once), ["long", "q0"])
    assert all(rows["completion_ids"]) and not any(map(sum, rows["env_mask"][:8]))
    assert [len(ids) for ids in rows["completion_ids"]] == list(map(len, rows["env_mask"]))
    assert game.figures["without_room"] == 8
