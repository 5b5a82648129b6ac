"""The learnt term beside the vector: it begins at nothing, weighs what is known, learns with the vectors, is kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from harr_links.links import FEATURES, Links
from letters import nothing
from safetensors.torch import save_file
from shelves import graph_of
from short_runs import TWO_STEPS

from harr.builders.encoder import trained_encoder
from harr.builders.methods import METHODS
from harr.embed.encoder import Encoder
from harr.errors import ModelError
from harr.params.embed import EncoderParams
from harr.params.train import GRPOParams, PolicyParams, PPOParams
from harr.rag.policies import plackett_luce
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.encoder_adapter import LINK_FEATURES
from harr.rag.policies.link_features import LinkFeatures
from harr.rag.rollout import play
from harr.rag.setup import Setup
from harr.train.batch import Batch
from harr.types import Log, Search

WAYS: dict[str, PolicyParams] = {
    "grpo": GRPOParams(method="grpo", **TWO_STEPS),
    "ppo": PPOParams(method="ppo", kl_weight=1e-3, **TWO_STEPS),
    "infonce": GRPOParams(method="grpo", **TWO_STEPS),
}


@pytest.fixture
def links(setup: Setup, corpus) -> Links:  # type: ignore[no-untyped-def]
    graph = graph_of(setup.policy.passages, corpus.folder / "tables")
    return Links(graph, words=4, titled=4, linked=4, naming=2, followed=2, neighbours=2)


def knowing(setup: Setup, links: Links, **weights: float) -> DensePolicy:
    """The policy with a term of these weights."""
    link_features = LinkFeatures(links, setup.policy.temperature)
    link_features.weights.data = torch.tensor([weights.get(name, 0.0) for name in FEATURES])
    return replace(setup.policy, link_features=link_features)


def searches(setup: Setup) -> list[Search]:
    return [Search(question, question.text, k=2) for question in setup.questions]


def test_a_weight_moves_what_it_speaks_of_and_none_changes_no_ranking(setup: Setup, links: Links) -> None:
    """Each question names a town, which is the title of two passages."""
    plain = setup.policy.greedy().retrieve(searches(setup))
    found = knowing(setup, links).greedy().retrieve(searches(setup))
    assert [one.passages for one in found] == [one.passages for one in plain]
    for weight in (100.0, -100.0):
        found = knowing(setup, links, titled=weight).greedy().retrieve(searches(setup))
        for one, question in zip(found, setup.questions, strict=True):
            named = {passage.title for passage in one.passages} == {question.id.removeprefix("q-")}
            assert named == (weight > 0), question.id


def test_what_was_sampled_can_be_weighed_again(setup: Setup, links: Links) -> None:
    policy = knowing(setup, links, titled=1.0, words=-0.5, query_in_text=2.0)
    batch = Batch.of(play(setup.questions, setup.pipeline, policy, None), {})
    states_UD = torch.from_numpy(policy.encoder.encode(batch.states, prompt=policy.prompt))
    logits_BN = policy.logits(states_UD, batch.state_of_B, batch.pool_BN, batch.features_BNF)
    again_B = plackett_luce.log_prob(logits_BN, batch.chosen_B)
    assert torch.allclose(again_B, batch.old_B.to(again_B), atol=1e-4)
    without_B = plackett_luce.log_prob(policy.logits(states_UD, batch.state_of_B, batch.pool_BN), batch.chosen_B)
    assert not torch.allclose(without_B, batch.old_B.to(without_B), atol=1e-2)


def learnt(method: str, setup: Setup, policy: DensePolicy, place: Path, work: str, log: Log = nothing) -> np.ndarray:
    """The weights that a training leaves."""
    game = replace(setup, retriever=policy)
    METHODS[method].train(WAYS[method], game, place / "adapter", place / work, log, seed=0)
    weights: np.ndarray = (
        LinkFeatures(policy.link_features.links, policy.temperature).load(place / "adapter").weights.detach().numpy()
    )
    return weights


@pytest.mark.parametrize("method", WAYS)
def test_every_method_learns_it_and_a_killed_run_ends_with_the_same_weights(
    method: str, setup: Setup, links: Links, tiny: str, tmp_path: Path
) -> None:
    def train(work: str, log: Log = nothing) -> np.ndarray:
        policy = replace(knowing(setup, links), encoder=Encoder(tiny, max_tokens=64))
        return learnt(method, setup, policy, tmp_path, work, log)

    def killed(step: int, values: object) -> None:
        if step == 1:
            raise KeyboardInterrupt

    whole = train("whole")
    assert np.abs(whole).max() > 0.01
    with pytest.raises(KeyboardInterrupt):
        train("killed", killed)
    assert np.array_equal(train("killed"), whole)


@pytest.mark.parametrize("method", ["grpo", "infonce"])
def test_the_term_can_learn_alone(
    method: str, setup: Setup, links: Links, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its encoder is as it was, no gradient goes through it, and no state is encoded twice."""
    policy = replace(knowing(setup, links), frozen=True)
    encoder, encoded, before = policy.encoder, list[str](), policy.encoder.encode(["a state"])
    forward = encoder.forward

    def counting(texts: list[str], **limits: object) -> torch.Tensor:
        assert not torch.is_grad_enabled()
        encoded.extend(texts)
        return forward(texts, **limits)  # type: ignore[arg-type]

    monkeypatch.setattr(encoder, "forward", counting)
    assert np.abs(learnt(method, setup, policy, tmp_path, "work")).max() > 0.01
    assert encoded and len(encoded) == len(set(encoded))
    assert policy.encode([]).shape == (0, encoder.width), "of several processes one may have no state"
    after = trained_encoder(EncoderParams(model=tiny, max_tokens=64), tmp_path / "adapter").encode(["a state"])
    assert np.array_equal(after, before)


def test_a_model_without_a_term_or_of_other_features_is_refused(links: Links, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"was trained without retriever\.link_features; leave that out"):
        LinkFeatures(links, 0.05).load(tmp_path)
    LinkFeatures(links, 0.05).save(tmp_path)
    assert LinkFeatures(links, 0.05).load(tmp_path).weights.tolist() == [0.0] * len(FEATURES)
    save_file({"titled": torch.tensor(2.0)}, tmp_path / LINK_FEATURES)
    before = LinkFeatures(links, 0.05).load(tmp_path).weights.tolist()
    assert before == [2.0 * (name == "titled") for name in FEATURES], "nothing for what it does not know"
    save_file({"other": torch.zeros(())}, tmp_path / LINK_FEATURES)
    with pytest.raises(ModelError, match="is of other features"):
        LinkFeatures(links, 0.05).load(tmp_path)
