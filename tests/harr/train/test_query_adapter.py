"""A linear map of the query's vector: it is all that learns, and every loader of the merged folder applies it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from letters import nothing
from query_adapters import with_query_adapter
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer

from harr.compute.tensors import trained_weights
from harr.embed.encoder import Encoder
from harr.embed.inference import InferenceEncoder, for_inference
from harr.errors import ModelError
from harr.merge.retriever import ExportedTower, merge
from harr.params.loop import OptimizerParams
from harr.params.train import GRPOParams, InfoNCEParams
from harr.rag.policies.encoder_adapter import load_adapter
from harr.rag.policies.query_adapter import QUERY_ADAPTER, QueryAdapter
from harr.rag.setup import Setup
from harr.train.grpo import train
from harr.train.infonce import train as train_infonce

TEXTS = ["Where was she born?", "Who founded Acme?"]
OPTIMIZER = OptimizerParams(learning_rate=1e-2)
FACTS = {"history": True, "statuses": True, "towers": "query", "retriever": {"state": "sep", "max_tokens": 64}}


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.mark.parametrize("method", ["grpo", "infonce"])
def test_the_map_learns_alone_and_is_what_every_loader_has(
    method: str, fresh: Callable[[], Setup], tiny: str, tmp_path: Path
) -> None:
    setup = with_query_adapter(fresh())
    encoder = setup.policy.encoder
    before = {name: weight.clone() for name, weight in trained_weights(encoder.model).items()}
    params = GRPOParams(
        method="grpo", steps=3, questions_per_step=6, group_size=4, optimizer=OPTIMIZER, infonce=InfoNCEParams()
    )
    learn = train if method == "grpo" else train_infonce
    learn(params, setup, tmp_path / "adapter", tmp_path / "work", nothing, 0)
    assert all(torch.equal(weight, before[name]) for name, weight in trained_weights(encoder.model).items())
    assert not list((tmp_path / "adapter").glob("adapter*")), "there is no LoRA"
    weight_DD = load_file(tmp_path / "adapter" / QUERY_ADAPTER)["weight"]
    assert weight_DD.shape == (encoder.width,) * 2 and not np.allclose(weight_DD, np.eye(encoder.width), atol=1e-4)

    mapped = unit(Encoder(tiny, max_tokens=64).encode(TEXTS) @ weight_DD.T)
    trained = Encoder(tiny, max_tokens=64)
    assert load_adapter(trained, tmp_path / "adapter") is None
    np.testing.assert_allclose(trained.encode(TEXTS), mapped, atol=1e-5)
    fast = for_inference(trained, torch.float32)
    assert isinstance(fast, InferenceEncoder), "the fast kernels serve it, too"
    np.testing.assert_allclose(fast.encode(TEXTS), mapped, atol=1e-5)

    queries = ExportedTower(Encoder(tiny, max_tokens=64), "", tmp_path / "adapter")
    figures = merge(queries, tmp_path / "merged", tmp_path / "work", min_cosine=0.9999, facts=FACTS)
    assert figures["cosine_min"] > 0.9999
    stock = SentenceTransformer(str(tmp_path / "merged"), device="cpu")
    np.testing.assert_allclose(unit(stock.encode(TEXTS)), mapped, atol=1e-5)


def test_a_map_of_another_width_is_refused(tiny: str, tmp_path: Path) -> None:
    encoder = Encoder(tiny, max_tokens=64)
    QueryAdapter(encoder.width + 1).save(tmp_path)
    (tmp_path / "harr.json").write_text(f'{{"base": "{encoder.identity}"}}')
    with pytest.raises(ModelError, match=rf"is of width {encoder.width + 1}, .* of {encoder.width}"):
        load_adapter(encoder, tmp_path)


def test_without_the_map_vectors_are_the_base_s() -> None:
    adapter, vector = QueryAdapter(3), torch.tensor([[0.0, 3.0, 4.0]])
    with adapter.disable_adapter():
        assert torch.equal(adapter(vector), vector)
    assert adapter(vector).tolist() == [[0.0, pytest.approx(0.6), pytest.approx(0.8)]]
