"""Late interaction as a score: worked by hand, enumerated over all orders, learnt by every method, exported."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from letters import nothing
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from short_runs import TWO_STEPS

from harr.builders.methods import METHODS
from harr.builders.retrievers import dense_policy
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.errors import IndexMismatch, ModelError
from harr.index.corpus import Corpus
from harr.io.files import read_json
from harr.merge.retriever import ExportedTower, merge
from harr.params.embed import EmbedParams
from harr.params.retriever import RetrieverParams
from harr.params.train import GRPOParams, PolicyParams, PPOParams
from harr.rag.policies import plackett_luce
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.maxsim import maxsim, mean_of_best
from harr.rag.rollout import play
from harr.rag.setup import Setup
from harr.train.batch import Batch
from harr.types import Search

WIDTH = 32
WAYS: dict[str, PolicyParams] = {
    "ppo": PPOParams(method="ppo", kl_weight=1e-3, **TWO_STEPS),
    "infonce": GRPOParams(method="grpo", **TWO_STEPS),
}


@pytest.fixture(scope="module")
def vectors(corpus, tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Vectors:  # type: ignore[no-untyped-def]
    """The towns' vectors with those of their tokens."""
    folder = tmp_path_factory.mktemp("tokens")
    params, encoder = EmbedParams(dtype="float32", tokens=WIDTH), Encoder(tiny, max_tokens=64)
    embed_corpus(Passages.open(corpus.folder / "corpus"), encoder, params, folder / "vectors", folder / "work")
    return Vectors.open(folder / "vectors")


@pytest.fixture
def game(setup: Setup, vectors: Vectors) -> Setup:
    """The game of the towns, by MaxSim."""
    policy = replace(setup.policy, encoder=setup.policy.encoder.late(WIDTH, 64), vectors=vectors, late=True)
    return replace(setup, retriever=policy)


def test_the_score_is_the_mean_of_the_best_by_hand(game: Setup, tiny: str) -> None:
    """Over the hidden states themselves, as sentence-transformers tells them, on the encoder's axes."""
    policy, texts = game.policy, ["What is Keswick like?", "Who?"]
    pool_BN = np.array([[3, 9, -1], [9, 4, 7], [1, 2, 3]])
    state_of_B = torch.tensor([0, 1, 0])
    with torch.no_grad():
        states_UX = policy.encoder.forward(texts)
        found_BN = maxsim(states_UX, state_of_B, pool_BN, policy.vectors)
        vectors_BNX = torch.from_numpy(policy.vectors.take(np.maximum(pool_BN, 0)))
        alone_BN = torch.einsum("bd,bnd->bn", states_UX[state_of_B, : policy.vectors.width], vectors_BNX)
        assert torch.allclose(policy.scores(states_UX, state_of_B, pool_BN), (found_BN + alone_BN) / 2, atol=1e-6)
    model, axes = SentenceTransformer(tiny, device="cpu"), policy.encoder.projection.numpy()

    def tokens(text: str) -> np.ndarray:  # type: ignore[type-arg]
        hidden = np.asarray(model.encode(text, output_value="token_embeddings", convert_to_numpy=False)) @ axes
        return hidden / np.linalg.norm(hidden, axis=-1, keepdims=True)

    for row, state in enumerate(state_of_B.tolist()):
        for place, passage in enumerate(policy.passages.take(np.maximum(pool_BN[row], 0).tolist())):
            if pool_BN[row, place] >= 0:
                by_hand = (tokens(texts[state]) @ tokens(passage.content).T).max(-1).mean()
                assert float(found_BN[row, place]) == pytest.approx(float(by_hand), abs=5e-3), "int8 costs little"


def test_the_gradient_is_that_of_finite_differences(vectors: Vectors) -> None:
    """Of the expected reward over all orders, by every number of a state; a token's best like is the same nearby."""
    rng = np.random.default_rng(1)
    state_X = np.zeros(vectors.width + 3 * WIDTH)
    state_X[vectors.width : vectors.width + 2 * WIDTH] = rng.standard_normal(2 * WIDTH)
    rows, reward_P = rng.permutation(vectors.rows)[:4], torch.from_numpy(rng.random(12))
    orders = np.array([(*head, *(i for i in range(4) if i not in head)) for head in permutations(range(4), 2)])

    def expected(states_UX: torch.Tensor) -> torch.Tensor:
        logits_BN = maxsim(states_UX, torch.zeros(12, dtype=torch.int64), rows[orders], vectors) / 0.5
        return (plackett_luce.log_prob(logits_BN, torch.full((12,), 2)).exp() * reward_P).sum()

    states_UX = torch.from_numpy(state_X[None]).requires_grad_()
    expected(states_UX).backward()
    step = 1e-6
    by_hand = [
        (expected(states_UX.detach() + step * axis) - expected(states_UX.detach() - step * axis)).item() / (2 * step)
        for axis in torch.eye(states_UX.shape[1], dtype=torch.float64)[: vectors.width + 2 * WIDTH]
    ]
    gradient = states_UX.grad[0, : len(by_hand)].numpy()  # type: ignore[index]
    np.testing.assert_allclose(gradient, by_hand, atol=1e-7)
    assert np.abs(gradient[vectors.width :]).min() > 0 and not gradient[: vectors.width].any()


def test_what_was_sampled_has_the_same_logits_again(game: Setup, setup: Setup) -> None:
    policy = game.policy
    batch = Batch.of(play(game.questions, game.pipeline, policy, None), {})
    with torch.no_grad():
        states_UX = policy.encoder.forward(batch.states, max_tokens=policy.max_tokens)
        late_BN = policy.logits(states_UX, batch.state_of_B, batch.pool_BN, batch.known_BNF)
        near, states_UD = replace(policy, late=False), states_UX[:, : policy.vectors.width]
        near_BN = near.logits(states_UD, batch.state_of_B, batch.pool_BN)
    again_B, vector_B = (plackett_luce.log_prob(logits_BN, batch.chosen_B) for logits_BN in (late_BN, near_BN))
    assert torch.allclose(again_B, batch.old_B.to(again_B), atol=1e-4)
    assert not torch.allclose(vector_B, batch.old_B.to(vector_B), atol=1e-2)
    searches = [Search(question, question.text, k=8) for question in setup.questions]
    by_vector, by_tokens = setup.policy.greedy().retrieve(searches), policy.greedy().retrieve(searches)
    assert [set(one.passages) for one in by_vector] == [set(one.passages) for one in by_tokens], "one pool"
    assert [one.passages for one in by_vector] != [one.passages for one in by_tokens]
    assert all(list(found.scores) == sorted(found.scores, reverse=True) for found in by_tokens)


@pytest.mark.parametrize("method", WAYS)
def test_every_method_learns(method: str, game: Setup, tmp_path: Path) -> None:
    METHODS[method].train(WAYS[method], game, tmp_path / "adapter", tmp_path / "work", nothing, seed=0)
    weights = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert max(float(weight.abs().max()) for name, weight in weights.items() if "lora_B" in name) > 1e-4
    assert read_json(tmp_path / "adapter" / "harr.json")["scores"] == "maxsim"


def test_grpo_gets_better_and_its_export_plays_the_same(game: Setup, tiny: str, tmp_path: Path) -> None:
    """The merged folder is stock, and ranks by tokens as the adapter does."""
    policy, unseen = game.policy, game.questions[12:]
    learning = replace(game, questions=game.questions[:12])
    params = GRPOParams(method="grpo", **TWO_STEPS | {"steps": 8, "questions_per_step": 10, "learning_rate": 3e-3})

    def recall(player: DensePolicy) -> float:
        return float(np.mean([game.reward(episode) for episode in play(unseen, game.pipeline, player, None)]))

    before = recall(policy.greedy())
    METHODS["grpo"].train(params, learning, tmp_path / "adapter", tmp_path / "work", nothing, seed=0)
    assert recall(policy.greedy()) > before + 0.5
    facts = {"towers": "query", "statuses": False, "history": True, "retriever": {"state": "sep", "max_tokens": 64}}
    tower = ExportedTower(Encoder(tiny, max_tokens=64), "", tmp_path / "adapter")
    merge(tower, tmp_path / "merged", tmp_path / "draft", min_cosine=0.9999, facts=facts)
    assert read_json(tmp_path / "merged" / "harr.json")["scores"] == "maxsim"
    assert "MaxSim" in (tmp_path / "merged" / "README.md").read_text()
    section = RetrieverParams(k=1, pool=8, state="sep", max_tokens=64, scores="maxsim")
    merged = Encoder(str(tmp_path / "merged"), max_tokens=64)
    player = dense_policy(section, merged, stored(policy), "corpus", history=True, trained=tmp_path / "merged")
    searches = [Search(question, question.text) for question in unseen]
    adapted = policy.greedy().retrieve(searches)
    assert [one.passages for one in player.retrieve(searches)] == [one.passages for one in adapted]
    by_vector = section.model_copy(update={"scores": "vector"})
    with pytest.raises(ModelError, match=r"trained with retriever\.scores maxsim, params\.yaml says vector; set it"):
        dense_policy(by_vector, merged, stored(policy), "corpus", history=True, trained=tmp_path / "merged")


def stored(policy: DensePolicy) -> Corpus:
    """What a policy searches, as builders take it."""
    return Corpus(policy.passages, policy.vectors, policy.index, lambda: None, lambda: None)  # type: ignore[arg-type, return-value]


def test_vectors_without_those_of_tokens_are_refused(setup: Setup) -> None:
    with pytest.raises(IndexMismatch, match=r"without those of tokens, which retriever\.scores maxsim compares; run"):
        dense_policy(
            RetrieverParams(scores="maxsim"), setup.policy.encoder, stored(setup.policy), "corpus", history=True
        )


def test_a_passage_of_one_token_beside_a_longer_one() -> None:
    """Zeros are no tokens: also where every product of a token is below 0, none scores 0."""
    passages = torch.tensor([[[-127, 0], [0, 0]], [[-127, 0], [0, -127]]], dtype=torch.int8)
    assert mean_of_best(torch.tensor([[1.0, 0.0]]), passages).tolist() == [-1.0, 0.0]
    assert mean_of_best(torch.tensor([[1.0, 0.0]]), passages[:1]).tolist() == [-1.0]
