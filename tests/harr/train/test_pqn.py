"""PQN: a table with a known optimum, learning on a tiny corpus, and its targets."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from letters import nothing

from harr.embed.encoder import Encoder
from harr.io.files import read_json
from harr.io.model_folder import PACKAGED
from harr.params.loop import CheckpointParams, OptimizerParams
from harr.params.train import PQNParams
from harr.params.train_facts import LoraParams
from harr.rag.policies.encoder_adapter import load_adapter
from harr.rag.policies.q_values import select_action, soft_value, values
from harr.rag.rollout import play
from harr.rag.scoring.ranking import all_gold
from harr.rag.scoring.reward import Reward
from harr.rag.scoring.terms import prefix_gains, recall
from harr.rag.setup import Setup
from harr.train import pqn
from harr.train.advantages import lambda_returns
from harr.train.batch import rate_share
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step

Towers = Callable[..., Setup]
QUICK = PQNParams(
    method="pqn",
    steps=12,
    questions_per_step=10,
    group_size=2,
    optimizer=OptimizerParams(learning_rate=2e-3, final_rate=0.1),
    checkpoints=CheckpointParams(every=4),
)


def test_a_table_reaches_its_known_optimum() -> None:
    """Pick two of four, in the order 2, 1: Q*(start, 2) = discount and Q*(2, 1) = 1; all other picks are worth less."""
    generator, discount = torch.Generator().manual_seed(0), 0.9
    critics = torch.zeros(2, 5, 4, requires_grad=True)  # states: nothing picked, or one of the four
    optimizer = torch.optim.Adam([critics], lr=0.05)
    for update in range(400):
        temperature = 0.3 * max(0.03, 1 - update / 300)
        targets, rows = [], []
        for _ in range(16):
            taken: list[int] = []
            states = []
            for _ in range(2):
                state = taken[-1] + 1 if taken else 0
                open_ = torch.tensor([[action not in taken for action in range(4)]])
                q = critics.detach().sum(0)[state][None]
                states.append((state, open_))
                taken.append(int(select_action(q, open_, temperature, generator)))
            worth = [float(soft_value(critics.detach()[:, s][:, None], o, temperature)) for s, o in states]
            rewards = [0.0, float(taken == [2, 1])]
            targets += lambda_returns(rewards, worth, discount=discount, lambda_=0.65)
            rows += [(state, action) for (state, _), action in zip(states, taken, strict=True)]
        state_B, action_B = torch.tensor(rows).T
        loss = 0.5 * (2 * critics[:, state_B, action_B] - torch.tensor(targets)).square().mean(1).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    q = critics.detach().sum(0)
    assert q[0].argmax() == 2 and q[3].argmax() == 1
    assert q[3, 1].item() == pytest.approx(1.0, abs=0.05) and q[0, 2].item() == pytest.approx(discount, abs=0.05)


def solved(setup: Setup) -> float:
    """Return the share of questions whose gold is picked greedily."""
    policy = replace(setup.retriever, sampling=None)
    episodes = play(setup.questions, setup.pipeline, policy, None)
    return sum(all_gold(episode) or 0.0 for episode in episodes) / len(episodes)


FULL = QUICK.model_copy(update={"lora": None, "optimizer": OptimizerParams(learning_rate=3e-4, final_rate=0.1)})


def with_adapters(setup: Setup, adapters: Path) -> Setup:
    """Return the game with trained towers, loaded as in evaluation."""
    load_adapter(setup.retriever.states, adapters)
    load_adapter(setup.retriever.actions, adapters / "action")
    return setup


@pytest.mark.parametrize(
    ("params", "model"),
    [
        (QUICK.model_copy(update={"steps": 6}), PACKAGED),
        (FULL.model_copy(update={"optimizer": OptimizerParams(learning_rate=1e-3, final_rate=0.1)}), ""),
    ],
    ids=["lora", "full"],
)
def test_the_towers_learn_and_the_export_plays_as_well(
    towers: Towers, tmp_path: Path, params: PQNParams, model: str
) -> None:
    setup = towers(model=model)
    before = solved(setup)
    history = pqn.train(params, setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert before < 0.7 < 0.9 <= solved(with_adapters(towers(model=model), tmp_path / "out"))
    assert [row["step"] for row in history] == list(range(params.steps))
    assert history[-1]["temperature"] < history[0]["temperature"] == 0.1


def test_as_published_it_learns_by_means_over_ten_and_says_so(towers: Towers, tmp_path: Path) -> None:
    """Mean vectors / 10 on both sides are raw means with value_scale .01; the rate decays by a cosine, and cools."""
    setup = towers(normalize=False)
    policy = replace(setup.retriever, scale=0.01, pick_order="picked")
    setup = replace(setup, retriever=policy, reward=Reward({"completion": 1.0}))
    adamw = {"decay": "cosine", "betas": (0.9, 0.98), "epsilon": 1e-6, "warmup_steps": 1}
    optimizer = FULL.optimizer.model_copy(update=adamw)
    published = FULL.model_copy(update={"steps": 4, "cooling": "rate", "optimizer": optimizer})
    history = pqn.train(published, setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert [row["temperature"] for row in history] == pytest.approx(
        [0.1 * rate_share(published, step) for step in range(4)]
    )
    assert history[-1]["loss"] < history[0]["loss"], "raw means learn, too"
    record = read_json(tmp_path / "out/harr.json")
    assert (record["normalize"], record["value_scale"], record["pick_order"]) == (False, 0.01, "picked")


def test_a_pick_is_paid_what_it_added(towers: Towers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paid: list[tuple[Episode, Sequence[float]]] = []

    def noted(params: PQNParams, policy: Any, episodes: Sequence[Episode], rewards: Any, values: Any) -> list[Any]:
        paid.extend(zip(episodes, rewards, strict=True))
        return transitions(params, policy, episodes, rewards, values)

    transitions = pqn.transitions
    monkeypatch.setattr(pqn, "transitions", noted)
    pqn.train(FULL.model_copy(update={"steps": 1}), towers(picks=2), tmp_path / "out", tmp_path / "work", nothing, 0)
    assert paid and all(rewards == pytest.approx(prefix_gains(recall, one)) for one, rewards in paid)
    assert any(rewards[0] > 0 for _, rewards in paid), "not at the end alone"


def test_a_state_shows_picks_as_it_is_told_to(towers: Towers) -> None:
    game = towers()
    policy, question = replace(game.retriever, max_tokens=128), game.questions[0]
    document = policy.document(question)
    late, early = document.passages[2], document.passages[0]
    hops = tuple(Hop("", passage.content) for passage in (late, early))
    search = Search(question, question.text, hops, frozenset({late.id, early.id}))
    (sorted_,), _ = policy.state_texts([search])
    (picked,), _ = replace(policy, pick_order="picked").state_texts([search])
    assert sorted_ == " [SEP] ".join([question.text, early.content, late.content])
    assert picked == " [SEP] ".join([question.text, late.content, early.content])


def test_random_positions_change_with_every_step_and_not_between(towers: Towers) -> None:
    game = towers("random")
    document = game.retriever.document(game.questions[0])
    first = game.retriever.positions(document, [])
    assert torch.equal(first, game.retriever.positions(document, [1])), "one episode keeps its positions"
    assert not torch.equal(first, replace(game.retriever, draw=(0, 1)).positions(document, []))


def test_the_loss_moves_each_critic_towards_half_the_return() -> None:
    """A critic is the product of one half of both vectors, times the scale; picks share states and actions."""
    states = {"s": torch.tensor([1.0, 0.0, 0.0, 0.5]), "t": torch.tensor([0.0, 2.0, 1.0, 0.0], requires_grad=True)}
    actions = {"a": torch.tensor([0.5, 1.0, 0.0, 1.0]), "b": torch.tensor([-1.0, 0.0, 2.0, 1.0])}

    def forward(texts: Sequence[str], prompt: str) -> torch.Tensor:
        return torch.stack([actions[text] for text in texts])

    policy = SimpleNamespace(actions=SimpleNamespace(forward=forward, passage_prompt=""), scale=0.5)
    learner = SimpleNamespace(
        optimizer=SimpleNamespace(zero_grad=lambda: None),
        vectors=lambda names: torch.stack([states[name] for name in names]),
        backward=lambda loss: loss.backward() if loss.requires_grad else None,
        update=dict,
    )
    moves = [("s", "a", 1.0), ("t", "b", 0.5), ("s", "b", -1.0), ("t", "a", 2.0)]
    picks = [pqn.Transition(state, action, 0.0, target) for state, action, target in moves]
    found = pqn.update(QUICK.model_copy(update={"states_per_pass": 1}), learner, policy, picks)
    q_PC = torch.stack([0.5 * (states[s] * actions[a]).view(2, 2).sum(-1) for s, a, _ in moves])
    loss = (0.5 * (2 * q_PC - torch.tensor([[target] for *_, target in moves])).square()).sum() / 4
    assert found["loss"] == pytest.approx(loss.item()) and found["value"] == pytest.approx(q_PC.sum().item() / 4)
    assert found["return"] == 2.5 / 4
    own, (wanted,) = states["t"].grad, torch.autograd.grad(loss, [states["t"]])
    torch.testing.assert_close(own, wanted)


@pytest.mark.parametrize("lora", [QUICK.lora, None])
def test_targets_follow_slowly(tiny: str, lora: LoraParams | None) -> None:
    encoder = Encoder(tiny, max_tokens=32)
    tower = pqn.Tower(encoder, QUICK.model_copy(update={"lora": lora}), seed=0)
    base = encoder.encode(["Ashford"])
    with torch.no_grad():
        for weight in tower.live:
            weight.add_(0.1)
    with pqn.target_weights(tower):
        assert (encoder.encode(["Ashford"]) == base).all()
    assert (encoder.encode(["Ashford"]) != base).any()
    live, copy = tower.live[0].detach().clone(), tower.copy[0].clone()
    tower.polyak_update(0.25)
    torch.testing.assert_close(tower.copy[0], copy + 0.25 * (live - copy))


def played(*found: str, gold: tuple[str, ...] = ("a", "b"), answer: str | None = None) -> Episode:
    """Make an episode of one pick per step."""
    question = Question("q", "Who?", ("Ada",), gold, ("a", "b", "x"))
    steps = [
        Step(Search(question, "Who?"), Retrieval((Passage(name, name),), state=f"s{n}")) for n, name in enumerate(found)
    ]
    return Episode(question, tuple(steps), Outcome(answer))


def test_an_episode_ends_with_its_gold_unless_it_was_played_to_an_answer(towers: Towers) -> None:
    policy = towers().retriever
    policy.attach_document(played().question, (Passage("a", "a"), Passage("b", "b"), Passage("x", "x")))

    def targets(episode: Episode, gains: list[float]) -> list[float]:
        params = QUICK.model_copy(update={"return_mix": 1.0, "discount": 1.0})
        picks = pqn.transitions(params, policy, [episode], [gains], [[0.0] * len(gains)])
        return [pick.target for pick in picks]

    assert targets(played("a", "b", "x"), [0.5, 0.5, -1.0]) == [1.0, 0.5], "what comes after the gold is not learnt"
    assert targets(played("a", "x", "x"), [0.5, 0.0, 0.0]) == [0.5, 0.0, 0.0]
    assert targets(played("a", "b", "x", answer="Ada"), [0.0, 0.0, 1.0]) == [1.0, 1.0, 1.0]
    assert targets(played("x", "x", gold=()), [0.0, 1.0]) == [1.0, 1.0], "without gold nothing ends it"


def test_states_are_valued_by_the_copies_and_their_soft_value(towers: Towers) -> None:
    """A state is worth the soft value of all open sentences under the target weights."""
    setup = towers(picks=2)
    tower = pqn.Tower(setup.retriever.states, QUICK, seed=0)
    (episode,) = play(setup.questions[:1], setup.pipeline, setup.retriever, None)
    before = pqn.state_values(setup.retriever, [episode], 0.1)
    document = setup.retriever.document(episode.question)
    for step, worth in zip(episode.steps, before[0], strict=True):
        states_1D = setup.retriever.encode_states([step.retrieval.state])
        texts = [passage.content for passage in document.passages]
        actions_ND = torch.from_numpy(setup.retriever.encode_actions(texts))
        critics = values(states_1D, actions_ND[None])
        open_1N = document.available(document.picked(step.search))[None]
        assert worth == pytest.approx(float(soft_value(critics, open_1N, 0.1)), abs=1e-5)
    with torch.no_grad():
        for weight in tower.live:
            weight.add_(0.05)
    assert pqn.state_values(setup.retriever, [episode], 0.1) != before
    with pqn.target_weights(tower):
        again = pqn.state_values(setup.retriever, [episode], 0.1)
    assert again[0] == pytest.approx(before[0], abs=1e-6)


def test_a_document_that_runs_out_ends_the_game(towers: Towers) -> None:
    setup = towers(picks=6)
    (episode,) = play(setup.questions[:1], setup.pipeline, setup.retriever, None)
    assert [len(step.retrieval.passages) for step in episode.steps] == [1, 1, 1, 1, 0]
    picks = pqn.transitions(QUICK, setup.retriever, [episode], [[0.0] * 5], [[0.0] * 5])
    assert len(picks) <= 4
