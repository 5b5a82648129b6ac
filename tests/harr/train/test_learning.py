"""Methods that teach a dense retriever: each gets better on towns it never saw, and what a step is made of."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from letters import nothing
from runs import weights

from harr.builders.methods import METHODS
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.errors import CorpusError
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.io.model_folder import PACKAGED
from harr.params.baselines import InfoNCEParams
from harr.params.embed import EmbedParams
from harr.params.index import IndexParams
from harr.params.train import GRPOParams, PolicyParams, PPOParams
from harr.params.train_facts import LoraParams
from harr.rag.rollout import play
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train.batch import Batch, drawn
from harr.train.grpo import advantages_of, update
from harr.train.infonce import first_missing, positives, train as infonce
from harr.train.learner import Learner
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step

COMMON = {
    "steps": 12,
    "questions_per_step": 10,
    "group_size": 4,
    "learning_rate": 1e-3,
    "states_per_pass": 4,
    "lora": LoraParams(rank=8, alpha=16),
}
PARAMS = GRPOParams(method="grpo", **COMMON)
Fresh = Callable[[], Setup]


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
    [("grpo", "language"), ("ppo", "language"), ("infonce", "setup"), ("replug", "setup"), ("lrat", "setup")],
)
def test_the_policy_gets_better_on_towns_it_never_trained_on(
    method: str, encoder: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    params: PolicyParams = PPOParams(method="ppo", kl_weight=1e-3, **COMMON) if method == "ppo" else PARAMS
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
    advantages = advantages_of(PARAMS, setup.reward, {"recall": [1.0, 0.0, 0.0, 1.0]}, episodes, 0)
    batch = Batch.of(episodes, {"advantage": [value for row in advantages for value in row]})
    assert len(batch) == 3 and advantages[3] == []
    assert advantages[0][0] == pytest.approx(0.866, abs=1e-3), "1/2 over a deviation of .577, of all four"


def test_rows_without_advantage_are_left_out_and_the_gradient_stays(setup: Setup, tmp_path: Path) -> None:
    params = PARAMS.model_copy(update={"learning_rate": 1e-12})
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
    """The game on questions that lack gold passages and have these answers."""
    bare = [replace(question, gold_ids=(), answers=answers) for question in setup.questions]
    return replace(setup, questions=bare, reward=Reward({"letters:half": 1.0}))


def test_infonce_learns_without_gold_from_what_states_an_answer(setup: Setup, tmp_path: Path) -> None:
    game = asks_without_gold(setup, "full of snow", "yes")
    episodes = play(list(game.questions[:3]), game.pipeline, game.retriever, None)
    for episode, (ids,) in zip(episodes, positives(episodes, game.policy.passages), strict=True):
        pool = [passage.id for passage in game.policy.passages.take(episode.steps[0].retrieval.pool)]
        assert ids == [pid for pid in pool if pid.endswith("-winter")], "those of its pool, in the pool's order"
    params = PARAMS.model_copy(update={"steps": 2})
    history = infonce(params, game, tmp_path / "adapter", tmp_path / "work", nothing, seed=0)
    assert all(row["answer_positives"] == row["distinct_states"] > 0 for row in history)
    learnt = weights(tmp_path / "adapter")
    assert max(float(weight.abs().max()) for name, weight in learnt.items() if "lora_B" in name) > 0


def test_infonce_refuses_what_it_could_not_learn_from(setup: Setup, tmp_path: Path) -> None:
    def learn(game: Setup) -> None:
        params = PARAMS.model_copy(update={"guard_window": 2})
        infonce(params, game, tmp_path / "adapter", tmp_path / "work", nothing, seed=0)

    with pytest.raises(CorpusError, match="none of 20 training questions has gold passages, or an answer other than"):
        learn(asks_without_gold(setup, "yes"))
    assert not (tmp_path / "work").exists(), "before the first rollout"
    line = "infonce: in 2 steps no pool held a passage that states an answer, so nothing is learnt"
    with pytest.raises(CorpusError, match=line):
        learn(asks_without_gold(setup, "Timbuktu"))


def test_infonce_is_drawn_away_from_what_its_own_search_found(fresh: Fresh, tmp_path: Path) -> None:
    """One question a step has no gold passages of others: without near misses it has nothing to tell apart."""
    losses = {}
    for hard in (0, 3, 30):
        contrast = InfoNCEParams(hard_negatives=hard, learning_rate=1e-2, temperature=0.1)
        params = PARAMS.model_copy(update={"steps": 1, "questions_per_step": 1, "infonce": contrast})
        (row,) = infonce(params, fresh(), tmp_path / f"{hard}", tmp_path / f"w{hard}", nothing, seed=0)
        losses[hard] = row["loss"]
    assert losses[0] == 0.0 < losses[3] < losses[30]


def test_every_question_comes_once_an_epoch() -> None:
    steps = [list(drawn(range(20), 5, seed=3, step=step)) for step in range(8)]
    first, second = ([one for step in half for one in step] for half in (steps[:4], steps[4:]))
    assert sorted(first) == sorted(second) == list(range(20)) and first != second
