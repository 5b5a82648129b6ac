"""Methods that train a retriever: a run resumes bit for bit, is guarded, keeps its best, learns, and counts honestly.

A Learner is shown by three methods that differ in what learns next to the encoder: nothing (GRPO), a head (PPO), a
second tower (PQN).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from letters import nothing
from pretended_gpu import forget_accelerator
from query_adapters import with_query_adapter
from runs import go_on, killed_at, same, timeless, weights
from transformers.modeling_layers import GradientCheckpointingLayer

from harr.builders.methods import METHODS
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.errors import CorpusError
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.io.model_folder import PACKAGED
from harr.params.embed import EmbedParams
from harr.params.index import IndexParams
from harr.params.loop import CheckpointParams, OptimizerParams
from harr.params.train import GRPOParams, InfoNCEParams, PPOParams, PQNParams
from harr.params.train_facts import LoraParams
from harr.rag.rollout import play
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train import learner, ppo
from harr.train.batch import Batch, draw_rows
from harr.train.grpo import advantages_of, train, update
from harr.train.infonce import first_missing, positives, train as infonce
from harr.train.learner import Learner
from harr.train.losses import k3_kl
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step

Fresh = Callable[[], Setup]
COMMON: dict[str, Any] = {
    "steps": 4,
    "questions_per_step": 6,
    "group_size": 4,
    "optimizer": OptimizerParams(learning_rate=1e-3),
    "states_per_pass": 4,
    "checkpoints": CheckpointParams(every=2),
    "lora": LoraParams(rank=8, alpha=16),
}
GRPO = GRPOParams(method="grpo", **COMMON)
KINDS = {
    "grpo": GRPO,
    "grpo-map": GRPOParams(method="grpo", kl_weight=1e-3, **COMMON),
    "ppo": PPOParams(method="ppo", kl_weight=1e-3, **COMMON),
    "ppo-critic": PPOParams(method="ppo", critic="encoder", kl_estimator="k3", kl_weight=1e-3, **COMMON),
    "pqn": PQNParams(method="pqn", **COMMON),
    "pqn-full": PQNParams(method="pqn", **COMMON | {"lora": None}),
}


@pytest.fixture
def game(fresh: Fresh, towers: Callable[..., Setup]) -> Callable[[str], Setup]:
    """A function that makes the untrained game of a kind."""

    def make(kind: str) -> Setup:
        if kind.startswith("pqn"):
            return towers("relative", picks=2)
        setup = fresh()
        return with_query_adapter(setup) if kind == "grpo-map" else setup

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_ends_with_the_same_weights(kind: str, game: Callable[[str], Setup], tmp_path: Path) -> None:
    def run(name: str, log: Any) -> list[dict[str, Any]]:
        return METHODS[KINDS[kind].method].train(
            KINDS[kind], game(kind), tmp_path / name, tmp_path / f"w-{name}", log, 1
        )

    whole = run("whole", nothing)
    assert timeless(whole) == timeless(go_on(lambda log: run("parts", log), 2))
    found = weights(tmp_path / "whole")
    assert found.keys() == weights(tmp_path / "parts").keys() and same(found, weights(tmp_path / "parts"))
    assert all(0 < row["play_seconds"] < row["seconds"] for row in whole)
    assert all(("without_advantage" in row) == kind.startswith("grpo") for row in whole), "others compare no rollouts"
    assert not any("head" in name or "critic" in name for name in found), "what learns beside is not exported"


def test_frozen_weights_in_bfloat16_change_no_bit_of_what_is_learnt(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str) -> set[torch.dtype]:
        game, optimizer = fresh(), GRPO.optimizer.model_copy(update={"precision": "bfloat16"})
        params = GRPO.model_copy(update={"optimizer": optimizer, "kl_weight": 0.01, "steps": 2})
        train(params, game, tmp_path / name, tmp_path / f"w-{name}", nothing, 1)
        return {weight.dtype for name, weight in game.policy.encoder.model.named_parameters() if "base_layer" in name}

    forget_accelerator()
    assert run("halved") == {torch.bfloat16}
    monkeypatch.setattr(learner, "halve_frozen", lambda model: None)
    assert run("whole") == {torch.float32}
    forget_accelerator()
    assert same(weights(tmp_path / "halved"), weights(tmp_path / "whole"))


@pytest.mark.fault(21)
def test_a_run_with_other_parameters_leaves_the_unfinished_one(
    fresh: Fresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(log: Any, rate: float = 1e-3, seed: int = 0) -> str:
        params = GRPO.model_copy(
            update={
                "steps": 2,
                "checkpoints": CheckpointParams(every=1),
                "optimizer": OptimizerParams(learning_rate=rate),
            }
        )
        train(params, fresh(), tmp_path / "adapter", tmp_path / "work", log, seed)
        return capsys.readouterr().out

    with pytest.raises(CorpusError, match="holds no question"):
        train(GRPO, replace(fresh(), questions=[]), tmp_path / "adapter", tmp_path / "work", nothing, 0)
    with pytest.raises(KeyboardInterrupt):
        run(killed_at(1))
    assert run(nothing, 1e-4) == "", "it begins at step 0"
    assert run(nothing) == "resuming train at step 1/2 (50.0%)\n", "the old one can still go on"
    assert run(nothing, seed=1) == "", "what was published is finished, and another arm begins"


@pytest.mark.fault(12)
def test_a_collapsed_run_stops_and_keeps_its_best_checkpoint(
    fresh: Fresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A huge learning rate ruins the policy; the best step's adapter is exported."""
    optimizer = OptimizerParams(learning_rate=3.0, warmup_steps=0)
    changes = {"steps": 12, "optimizer": optimizer, "checkpoints": CheckpointParams(every=1, window=1)}
    wild = GRPO.model_copy(update=changes)
    history = train(wild, fresh(), tmp_path / "adapter", tmp_path / "work", nothing, 0)
    assert len(history) < wild.steps
    assert "keeping the checkpoint of step" in capsys.readouterr().out
    best = max(range(len(history)), key=lambda i: (history[i]["reward_mean"], i)) + 1
    (kept,) = (tmp_path / "work").glob(f"*/checkpoint-{best:06d}")
    assert same(weights(kept), weights(tmp_path / "adapter"))
    again = train(wild, fresh(), tmp_path / "adapter", tmp_path / "work", nothing, 0)
    assert again == history, "and stays stopped"


@pytest.mark.fault(12)
def test_a_run_in_which_no_group_differs_stops_and_says_so(
    fresh: Fresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reward is the same whatever is found; a run that was killed midway reaches the same verdict."""
    params = GRPO.model_copy(update={"checkpoints": CheckpointParams(every=2, window=3)})

    def run(log: Any) -> list[dict[str, Any]]:
        alike = replace(fresh(), reward=Reward({"letters:half": 1.0}))
        return train(params, alike, tmp_path / "adapter", tmp_path / "work", log, 0)

    history = go_on(run, 2)
    assert [row["without_advantage"] for row in history] == [1.0] * 3 and history[-1]["zero_std_share"] == 1.0
    said = "train stopped after step 3: no group's rewards differed in the last 3 steps, so nothing is learnt; "
    output = capsys.readouterr().out
    assert (
        "resuming train at step 2/4" in output and said in output and "; keeping the checkpoint of step 3\n" in output
    )
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
    assert run(nothing) == history and said in capsys.readouterr().out, "and stays stopped"


@pytest.mark.parametrize("kind", ["grpo", "pqn-full"])
def test_gradient_checkpointing_changes_no_gradient(kind: str, game: Callable[[str], Setup], tmp_path: Path) -> None:
    norms = []
    for spared in (False, True):
        optimizer = KINDS[kind].optimizer.model_copy(update={"gradient_checkpointing": spared})
        one, own = KINDS[kind].model_copy(update={"steps": 1, "optimizer": optimizer}), game(kind)
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
    """It has the weights of the arm trained as long, kept next to the result of training by reward."""
    contrast = InfoNCEParams(learning_rate=2e-3, hard_negatives=5)
    more = {"steps": 2, "warm_start": 3, "infonce": contrast, "checkpoints": CheckpointParams(every=1)}
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


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_ppo_takes_what_a_step_strayed_off_its_reward_and_whitens_the_rest(
    setup: Setup, tmp_path: Path, estimator: str
) -> None:
    """With one search per episode, the return is the reward less half the KL, and the advantage is that less V."""
    params = KINDS["ppo"].model_copy(update={"kl_weight": 0.5, "kl_estimator": estimator})
    head = ppo.value_head(setup.policy.vectors.width, 0)
    torch.nn.init.constant_(head[-1].bias, 0.25)
    learner = Learner.open(params, setup, tmp_path / "work", 0, kind="ppo", head=head)
    for name, weight in learner.adapter.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1, generator=torch.Generator().manual_seed(0))
    episodes = play(setup.questions[:6], setup.pipeline, setup.policy, None)
    batch, figures = ppo.make_batch(params, learner, head, episodes, [[float(place)] for place in range(6)])
    rows = Batch.of(episodes, {"reward": range(6)})
    base_B = learner.reference(rows)
    kl_B = k3_kl(rows.old_B, base_B) if estimator == "k3" else rows.old_B - base_B
    return_B = rows.columns["reward"] - 0.5 * kl_B
    left_B = return_B - 0.25
    wanted = {"target": return_B, "value": torch.full((6,), 0.25)}
    for name, value_B in (wanted | {"advantage": (left_B - left_B.mean()) / left_B.std(correction=0)}).items():
        torch.testing.assert_close(batch.columns[name], value_B, atol=1e-4, rtol=1e-4)
    assert figures == pytest.approx({"kl": float(kl_B.mean()), "explained_variance": 0.0}, abs=1e-4)
    assert kl_B.abs().max() > 0.01
    found = ppo.update(params, learner, head, batch)
    assert found["value_loss"] == pytest.approx(0.5 * float(left_B.square().mean()), rel=1e-4)
    assert found["clip_share"] == 0.0 and found["loss"] == pytest.approx(0.0, abs=1e-4), "the first is on-policy"


def test_a_critic_with_an_encoder_of_its_own_learns(fresh: Fresh, tmp_path: Path) -> None:
    losses = []
    for often in (1, 8):
        changes = {"steps": 1, "group_size": 1, "value_learning_rate": 3e-3, "num_iterations": often}
        params = KINDS["ppo-critic"].model_copy(update=changes)
        (row,) = METHODS["ppo"].train(params, fresh(), tmp_path / f"{often}", tmp_path / f"w{often}", nothing, 1)
        assert row["kl"] >= 0
        losses.append(row["value_loss"])
    assert losses[1] < 0.95 * losses[0], "of one and the same batch"


def test_infonce_has_a_rate_of_its_own() -> None:
    assert GRPO.of_infonce().optimizer.learning_rate == 1e-3
    own = GRPO.model_copy(update={"warm_start": 8, "infonce": InfoNCEParams(learning_rate=1e-4)}).of_infonce()
    assert (own.optimizer.learning_rate, own.steps, own.warm_start) == (1e-4, 12, 0), (
        "as many steps as trained has in all"
    )


@pytest.fixture
def language(setup: Setup, tmp_path: Path) -> Iterator[Setup]:
    """The game of ``setup`` for an encoder that knows what words mean."""
    folder, encoder, passages = tmp_path / "language", Encoder(PACKAGED, max_tokens=64), setup.policy.passages
    embed_corpus(passages, encoder, EmbedParams(dtype="float32"), folder / "vectors", folder / "work")
    vectors = Vectors.open(folder / "vectors")
    build_index(passages, vectors, IndexParams(), folder / "index", folder / "index-work")
    with PassageIndex.open(folder / "index", IndexParams(), identity=vectors.identity) as index:
        yield replace(setup, retriever=replace(setup.retriever, encoder=encoder, vectors=vectors, index=index))


def mean_recall(setup: Setup, questions: list[Question]) -> float:
    episodes = play(questions, setup.pipeline, replace(setup.retriever, sampling=None), None)
    return float(np.mean([setup.reward(episode) for episode in episodes]))


@pytest.mark.parametrize(
    ("method", "encoder"),
    [("grpo", "language"), ("ppo", "language"), ("infonce", "setup")],
)
def test_the_policy_gets_better_on_towns_it_never_trained_on(
    method: str, encoder: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    params = KINDS["ppo" if method == "ppo" else "grpo"].model_copy(
        update={"steps": 8 if encoder == "language" else 12, "questions_per_step": 10}
    )
    whole: Setup = request.getfixturevalue(encoder)
    unseen, game = list(whole.questions[12:]), replace(whole, questions=whole.questions[:12])
    before = mean_recall(game, unseen)
    history = METHODS[method].train(params, game, tmp_path / "adapter", tmp_path / "work", nothing, seed=0)
    assert before < 0.7
    assert mean_recall(game, unseen) > before + 0.25
    assert all(row["distinct_states"] <= 10 and row["searches"] == 40 for row in history), "a state is encoded once"
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "harr.json",
        "sha256sums.txt",
    ], "the value head is not exported"
    if method == "grpo":
        assert history[0]["logprob_gap"] < 1e-3, "the first update must be exactly on-policy"
        assert 0 < history[0]["gradient_noise"] < 10


def test_an_episode_without_a_search_has_no_row(setup: Setup) -> None:
    played = play(list(setup.questions[:1]) * 3, setup.pipeline, setup.retriever, None)
    episodes = [*played, Episode(setup.questions[0])]
    advantages = advantages_of(GRPO, setup.reward, {"recall": [1.0, 0.0, 0.0, 1.0]}, episodes, 0)
    batch = Batch.of(episodes, {"advantage": [value for row in advantages for value in row]})
    assert len(batch) == 3 and advantages[3] == []
    assert advantages[0][0] == pytest.approx(0.866, abs=1e-3), "1/2 over a deviation of .577, of all four"


def test_rows_without_advantage_are_left_out_and_the_gradient_stays(setup: Setup, tmp_path: Path) -> None:
    params = GRPO.model_copy(update={"optimizer": OptimizerParams(learning_rate=1e-12)})
    episodes = play([one for one in setup.questions[:6] for _ in range(2)], setup.pipeline, setup.policy, None)
    count = sum(len(episode.steps) for episode in episodes)
    columns = {"advantage": [1.0, 0.0, -0.5, 0.0][:count] + [0.0] * (count - 4), "weight": [1 / count] * count}
    whole = Batch.of(episodes, columns)
    learning = whole.where(whole.columns["advantage"] != 0.0)
    assert len(learning) == 2 and len(learning.states) <= 2 < len(whole.states)
    learner = Learner.open(params, setup, tmp_path / "work", 0, kind="grpo")
    before, after = update(params, learner, whole), update(params, learner, learning)
    assert after["loss"] == pytest.approx(before["loss"], abs=1e-6)
    assert after["grad_norm"] == pytest.approx(before["grad_norm"], rel=1e-4) and after["grad_norm"] > 0
    assert len(whole.where(torch.zeros(count, dtype=torch.bool))) == 1, "Adam goes on as it would"


@pytest.mark.parametrize(
    ("status", "wanted"),
    [("FOUND", {"one": "a"}), ("NOT_FOUND", {"one": "a", "two": "a"}), ("", {"one": "a", "two": "a"})],
)
def test_infonce_learns_nothing_from_what_follows_a_wrong_answer(status: str, wanted: dict[str, str]) -> None:
    question = Question("q", "Who?", gold_ids=("a", "b"))
    found = {"one": "x", "two": "b"}
    steps = [Step(Search(question, state), Retrieval((Passage(pid, ""),), state=state)) for state, pid in found.items()]
    outcome = Outcome(hops=(Hop("", "wrong", status), Hop("", "right", "FOUND")))
    assert first_missing([Episode(question, tuple(steps), outcome)], [[question.gold_ids] * 2]) == wanted


def test_infonce_still_wants_what_came_along_with_the_gold_of_an_earlier_search() -> None:
    question = Question("q", "Who?", gold_ids=("a", "b"))
    both = Retrieval((Passage("b", ""), Passage("a", "")), state="one")
    steps = (Step(Search(question, "one"), both), Step(Search(question, "two"), replace(both, state="two")))
    outcome = Outcome(hops=(Hop("", "x", "FOUND"), Hop("", "y", "FOUND")))
    assert first_missing([Episode(question, steps, outcome)], [[question.gold_ids] * 2]) == {"one": "a", "two": "b"}


def asks_without_gold(setup: Setup, *answers: str) -> Setup:
    """Return the game on questions that lack gold passages and have these answers."""
    bare = [replace(question, gold_ids=(), answers=answers) for question in setup.questions]
    return replace(setup, questions=bare, reward=Reward({"letters:half": 1.0}))


def test_infonce_learns_without_gold_from_what_states_an_answer(setup: Setup, tmp_path: Path) -> None:
    game = asks_without_gold(setup, "full of snow", "yes")
    episodes = play(list(game.questions[:3]), game.pipeline, game.retriever, None)
    for episode, (ids,) in zip(episodes, positives(episodes, game.policy.passages), strict=True):
        pool = [passage.id for passage in game.policy.passages.take(episode.steps[0].retrieval.pool)]
        assert ids == [pid for pid in pool if pid.endswith("-winter")], "those of its pool, in the pool's order"
    params = GRPO.model_copy(update={"steps": 2})
    history = infonce(params, game, tmp_path / "adapter", tmp_path / "work", nothing, seed=0)
    assert all(row["answer_positives"] == row["distinct_states"] > 0 for row in history)
    learnt = weights(tmp_path / "adapter")
    assert max(float(weight.abs().max()) for name, weight in learnt.items() if "lora_B" in name) > 0


@pytest.mark.fault(39)
def test_infonce_refuses_what_it_could_not_learn_from(setup: Setup, tmp_path: Path) -> None:
    def learn(game: Setup) -> None:
        params = GRPO.model_copy(update={"checkpoints": CheckpointParams(every=2, window=2)})
        infonce(params, game, tmp_path / "adapter", tmp_path / "work", nothing, seed=0)

    with pytest.raises(CorpusError, match="none of 20 training questions has gold passages, or an answer other than"):
        learn(asks_without_gold(setup, "yes"))
    assert not (tmp_path / "work").exists(), "before the first rollout"
    line = "infonce: in 2 steps no pool held a passage that states an answer, so nothing is learnt"
    with pytest.raises(CorpusError, match=line):
        learn(asks_without_gold(setup, "Timbuktu"))


def test_infonce_is_drawn_away_from_what_its_own_search_found(fresh: Fresh, tmp_path: Path) -> None:
    """With one question a step there are no other gold passages: without near misses nothing can be told apart."""
    losses = {}
    for hard in (0, 3, 30):
        contrast = InfoNCEParams(hard_negatives=hard, learning_rate=1e-2, temperature=0.1)
        params = GRPO.model_copy(update={"steps": 1, "questions_per_step": 1, "infonce": contrast})
        (row,) = infonce(params, fresh(), tmp_path / f"{hard}", tmp_path / f"w{hard}", nothing, seed=0)
        losses[hard] = row["loss"]
    assert losses[0] == 0.0 < losses[3] < losses[30]


def test_every_question_comes_once_an_epoch() -> None:
    steps = [list(draw_rows(range(20), 5, seed=3, step=step)) for step in range(8)]
    first, second = ([one for step in half for one in step] for half in (steps[:4], steps[4:]))
    assert sorted(first) == sorted(second) == list(range(20)) and first != second
