"""LRAT and REPLUG: what the rollouts of a group say of passages, and the contrast and divergence that are learnt."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from harr_lm_supervision import labels, lrat, replug
from harr_lm_supervision.lrat import LratParams, LratPolicy, preferred
from harr_lm_supervision.policy import policy_of
from harr_lm_supervision.replug import ReplugParams, ReplugPolicy, passage_rewards
from stages import SMOKE, nothing, world_params

from harr.builders.methods import Method, arm_method, method_of
from harr.errors import ParamsError
from harr.params import Params
from harr.params.loop import OptimizerParams
from harr.params.train import ArmTrainParams, FunctionTrainParams, GRPOParams, PPOParams
from harr.params.train_facts import LoraParams
from harr.rag.rollout import play
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train import infonce
from harr.types import Episode, Passage, Question, Retrieval, Search, Step
from tasks.arms import train_arms, train_each
from tasks.filter import filter_training_questions

REPLUG, LRAT = "harr_lm_supervision.replug:METHOD", "harr_lm_supervision.lrat:METHOD"
METHODS = {REPLUG: replug.METHOD, LRAT: lrat.METHOD}
LABELS = "harr_lm_supervision.labels:"
ARMS = [
    {"name": "replug", "method": REPLUG, "settings": {"target_temperature": 0.03}},
    {"name": "lrat", "method": LRAT, "settings": {"learning_rate": 1e-4}},
]


def chose(state: str, rows: Sequence[int]) -> Step:
    passages = tuple(Passage(str(row), "") for row in rows)
    return Step(Search(Question("q", "Who?"), "Who?"), Retrieval(passages, state=state, pool=(*rows, 9)))


def axes(states_UD: torch.Tensor, state_of_B: torch.Tensor, rows_BN: Any) -> torch.Tensor:
    """Scores of passages that are the unit vectors of four axes."""
    return states_UD[state_of_B].take_along_dim(torch.from_numpy(np.maximum(rows_BN, 0)), dim=-1)


@pytest.fixture
def learner() -> Any:
    """What an update looks at of a Learner; every state has the vector ``state``, passages are their ids."""
    state_D = torch.tensor([[0.1, 0.2, 0.3, 0.4]], requires_grad=True)
    passages = SimpleNamespace(rows_of=lambda ids: {pid: int(pid) for pid in ids})
    return SimpleNamespace(
        state=state_D,
        optimizer=SimpleNamespace(zero_grad=lambda: None),
        dense=SimpleNamespace(scores=axes, passages=passages, temperature=0.05),
        vectors=lambda states: state_D.repeat(len(states), 1),
        backward=lambda loss: loss.backward(),
        update=dict,
        term=lambda known, states, rows_UN: 0.0,
    )


def test_the_positive_is_what_the_better_rollouts_chose() -> None:
    one, two = Question("one", "Who?"), Question("two", "Who?")
    episodes = [
        Episode(one, (chose("s", (1, 2)), chose("later", (5,)))),
        Episode(one, (chose("s", (1, 3)),)),
        Episode(two, (chose("t", (4,)),)),
        Episode(two, (chose("t", (6,)),)),
    ]
    targets, weights, groups = preferred(episodes, [[3.0, -1.0], [-1.0], [-0.5], [1.0]])
    assert targets == {"s": "2", "t": "6"}, "of a state where all chose alike or worse nothing is learnt"
    assert weights == {"s": 1.5, "t": 0.5}
    assert groups == [("1", "2"), ("6",)]
    assert preferred(episodes, [[0.0, 0.0], [0.0], [0.0], [0.0]]) == ({}, {}, [])


@pytest.mark.parametrize("weights", [None, {"s": 1.5, "t": 0.5}])
def test_the_loss_is_the_weighted_cross_entropy_over_positives_and_what_was_not_chosen(
    learner: Any, weights: dict[str, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infonce, "shares", lambda states, size: [(0, 1), (1, 1), (1, 2)])  # of a process, one is empty
    params, section = GRPOParams(method="grpo", states_per_pass=1), LratParams(temperature=0.2, hard_negatives=1)
    targets, groups, pools = {"s": "0", "t": "3"}, [("0", "1"), ("3",)], {"s": (0, 2, 1), "t": (3, 2)}
    found = infonce.update(params, section, learner, targets, groups, pools, {}, weights)["loss"]
    expected = 0.0
    for state, positive, others in (("s", 0, [3, 2]), ("t", 3, [0, 1, 2])):
        scores = learner.state.detach()[0, [positive, *others]].double() / 0.2
        expected -= float(torch.log_softmax(scores, 0)[0]) * (weights[state] if weights else 1.0) / 2
    assert found == pytest.approx(expected, rel=1e-4)


def test_a_passage_is_worth_what_the_rollouts_that_chose_it_earned_on_average() -> None:
    question = Question("q", "Who?")
    group = [
        Episode(question, (chose("s", (1, 2)), chose("later", (5,)))),
        Episode(question, (chose("s", (1, 3)),)),
        Episode(question, (chose("s", (2, 3)),)),
        Episode(question, (chose("alone", (4, 6)),)),
    ]
    rewards = passage_rewards([*group, *group], [1.0, 0.0, 1.0, 0.0, *[0.5] * 4], 4)
    expected = {"s": {1: 0.5, 2: 1.0, 3: 0.5, 9: 0.5}}
    assert rewards == expected, "what nobody compared is left out; what nobody chose is worth no more than the worst"


@pytest.mark.parametrize("temperature", [None, 0.5])
def test_the_loss_is_the_divergence_of_both_distributions(learner: Any, temperature: float | None) -> None:
    section = ReplugParams(target_temperature=0.2, temperature=temperature)
    params = ReplugPolicy(method="grpo", own=section, states_per_pass=1)
    rewards = {"s": {0: 0.5, 3: 1.0, 1: 0.0}, "t": {2: 1.0, 1: 0.0}}
    found = replug.update(params, learner, rewards, {})["loss"]
    gamma, expected = temperature or 0.05, 0.0
    for worth in rewards.values():
        p = torch.softmax(learner.state.detach()[0, list(worth)].double() / gamma, 0)
        q = torch.softmax(torch.tensor(list(worth.values())).double() / 0.2, 0)
        expected += float((p * (p / q).log()).sum()) / 2
    assert found == pytest.approx(expected, rel=1e-4)
    assert torch.isfinite(learner.state.grad).all() and float(learner.state.grad.abs().max()) > 0


def test_an_arm_has_a_rate_of_its_own_and_the_warm_start_of_trained() -> None:
    warm = GRPOParams(
        method="grpo", steps=4, warm_start=8, credit="step", discount=0.5, optimizer={"learning_rate": 1e-3}
    )
    rival = policy_of(LratPolicy, ArmTrainParams.of(warm, LRAT, {"learning_rate": 1e-4, "hard_negatives": 3}))
    assert (rival.steps, rival.warm_start, rival.optimizer.learning_rate, rival.warm_rate) == (4, 8, 1e-4, 1e-3)
    assert (rival.credit, rival.discount, rival.own.hard_negatives) == ("step", 0.5, 3)
    rival_of_ppo = policy_of(ReplugPolicy, ArmTrainParams.of(PPOParams(method="ppo", discount=0.5), REPLUG, {}))
    assert (rival_of_ppo.discount, rival_of_ppo.own.target_temperature) == (1.0, 0.1)
    alone = FunctionTrainParams(
        method="function", function=REPLUG, learns="retriever", steps=3, settings={"grpo": {"warm_start": 2}}
    )
    assert policy_of(ReplugPolicy, alone).total_steps == 5
    assert replug.METHOD.describe(alone)["method"] == "REPLUG" and "warm start" in replug.METHOD.describe(alone)


@pytest.mark.parametrize("function", METHODS)
def test_the_retriever_gets_better_on_towns_it_never_trained_on(function: str, setup: Setup, tmp_path: Path) -> None:
    lora = LoraParams(rank=8, alpha=16)
    params = FunctionTrainParams(
        method="function",
        function=function,
        learns="retriever",
        steps=12,
        questions_per_step=10,
        group_size=4,
        optimizer=OptimizerParams(learning_rate=1e-3),
        lora=lora,
        settings={"grpo": {"states_per_pass": 4}},
    )
    unseen, game = list(setup.questions[12:]), replace(setup, questions=setup.questions[:12])

    def recall() -> float:
        episodes = play(unseen, game.pipeline, replace(game.retriever, sampling=None), None)
        return float(np.mean([game.reward(episode) for episode in episodes]))

    before = recall()
    history = method_of(params).train(params, game, tmp_path / "adapter", tmp_path / "work", nothing, 0)
    assert before < 0.7 and recall() > before + 0.25
    assert all(row["distinct_states"] <= 10 and row["searches"] == 40 for row in history), "a state is encoded once"
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()


def test_both_are_trained_as_arms(place: Path, tiny: str) -> None:
    params = world_params(tiny, evaluate={**SMOKE["evaluate"], "arms": ["frozen", *ARMS, "trained"], "seeds": 1})
    filter_training_questions(params, nothing)
    figures = train_arms(params, nothing)
    assert figures["runs"] == 2 and figures["replug-0.reward_last_10"] >= 0 and figures["lrat-0.reward_last_10"] >= 0
    assert all(Path(f"models/arms/{name}-0/adapter_model.safetensors").exists() for name in ("replug", "lrat"))


@pytest.mark.parametrize("name", ["GOLD_REWARD", "ANSWER_STRINGS"])
def test_what_is_told_the_gold_or_looks_for_answers_asks_no_reader(name: str, setup: Setup, tmp_path: Path) -> None:
    """Rewards are of gold alone; without gold the positives are passages that state an answer."""
    run = GRPOParams(method="grpo", steps=3, questions_per_step=4, group_size=4, states_per_pass=4)
    section = ArmTrainParams.of(run, LABELS + name, {})
    passages = {passage.id: passage for passage in setup.policy.passages.take(range(len(setup.policy.passages)))}
    questions = [replace(asked, answers=(passages[asked.gold_ids[-1]].text,)) for asked in setup.questions]
    game = replace(setup, questions=questions, reward=Reward({"answer_f1": 1.0}))
    method = method_of(section)
    rows = method.train(section, game, tmp_path / "adapter", tmp_path / "work", nothing, 0)
    assert not method.rewarded, "stage arms asks no reader of picks"
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
    if name == "GOLD_REWARD":
        assert all(row["reward_mean"] > 0 for row in rows), "recall of gold"
        with pytest.raises(ParamsError, match="trains an arm; name it in evaluate"):
            labels.GOLD_REWARD.train(alone(LABELS + name), game, tmp_path / "a", tmp_path / "w", nothing, 0)
    else:
        assert all(row["answer_positives"] > 0 for row in rows)


def test_finished_work_of_trained_is_not_taken_for_theirs(
    place: Path, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    games: list[tuple[str, Path]] = []

    def train(params: Any, game: Setup, out: Path, work: Path, *others: object) -> list[dict[str, Any]]:
        games.append((game.identity, work))
        return [{"reward_mean": 1.0, "zero_std_share": 0.0}]

    ours = {"grpo": Method(train), "infonce": Method(train)}
    monkeypatch.setattr("harr.builders.methods.METHODS", ours)
    monkeypatch.setattr(labels, "METHODS", ours)
    monkeypatch.setattr(labels.infonce, "train", train)
    named = [{"name": name.lower(), "method": LABELS + name} for name in ("GOLD_REWARD", "ANSWER_STRINGS")]
    arms = ["frozen", *named, "infonce", "trained"]
    params = world_params(tiny, evaluate={**SMOKE["evaluate"], "arms": arms, "seeds": 2})
    filter_training_questions(params, nothing)
    train_each(params, nothing, print)
    assert len(games) == 7 and len({*games}) == 4, "seeds share a folder, arms do not"


def alone(function: str) -> FunctionTrainParams:
    return FunctionTrainParams(method="function", function=function, learns="retriever", steps=3)


@pytest.mark.parametrize(
    ("arm", "line"),
    [
        ({"name": "mine", "method": "nowhere.learn:METHOD"}, "evaluate.arms mine.method: nowhere.learn:METHOD cannot"),
        ({"name": "mine", "method": REPLUG, "settings": {"temprature": 1}}, "mine.settings: unknown parameter tempra"),
        (
            {"name": "mine", "method": REPLUG, "settings": {"grpo": {"warm_starts": 1}}},
            "train.method grpo: unknown parameter warm_starts; did you mean warm_start",
        ),
    ],
)
def test_what_does_not_fit_is_one_line_before_anything_is_played(arm: dict[str, Any], line: str, tiny: str) -> None:
    params = world_params(tiny, evaluate={"arms": [arm, "trained"]})
    with pytest.raises(ParamsError, match=line):
        arm_method(params, "mine")
    assert isinstance(arm_method(params, "trained")[0], Method)


@pytest.mark.parametrize(
    "train", [{"method": "pqn"}, {"method": "ppo", "group_size": 1}], ids=["towers", "nothing to compare"]
)
def test_an_arm_that_compares_rollouts_goes_with_a_policy(train: dict[str, Any]) -> None:
    own = {"retriever": {"candidates": "question"}, "generator": {"kind": "none"}, "pipeline": {"name": "pick"}}
    arms = {"arms": [{"name": "mine", "method": LRAT}, "trained"], "candidates": ["question"]}
    with pytest.raises(ValueError, match="the arm mine trains a retriever by rollouts that it compares"):
        Params.model_validate({"download": SMOKE["download"], **own, "train": train, "evaluate": arms})
