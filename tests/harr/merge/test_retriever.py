"""Merging: the folder is stock, equals the adapter, and belongs to one base."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny import WIDTH, tiny_encoder
from transformers import AutoModel, AutoTokenizer

from harr.embed.encoder import Encoder
from harr.errors import ModelError
from harr.io.files import read_json, write_json
from harr.io.model_folder import PACKAGED
from harr.merge.retriever import ExportedTower, merge, save_stock
from harr.rag.policies.encoder_adapter import add_adapter, load_adapter, save_adapter

TEXT = "Query: Where was she born?"
FACTS = {"index_identity": "i", "towers": "both", "statuses": True, "history": True}
ALL_FACTS = FACTS | {"retriever": {"state": "json", "max_tokens": 64}}


def encoder(prompt: str = "", passage_prompt: str = "", model: str = "") -> Encoder:
    return Encoder(model or tiny_encoder(), max_tokens=64, query_prompt=prompt, passage_prompt=passage_prompt)


def save_moved(base: Encoder, folder: Path, seed: int, std: float = 0.5) -> Path:
    """Save an adapter that moves the encoder a lot."""
    handle = add_adapter(base, rank=4, alpha=8, seed=0)
    with torch.no_grad():
        for name, weight in handle.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=std, generator=torch.Generator().manual_seed(seed))
    save_adapter(handle, base, folder)
    return folder


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return save_moved(encoder("ask: "), tmp_path / "adapter", 1)


def publish(
    adapter: Path, out: Path, documents: ExportedTower | None = None, facts: Any = ALL_FACTS, model: str = ""
) -> dict[str, float]:
    tower = ExportedTower(encoder("ask: ", model=model), "ask: ", adapter)
    return merge(tower, out, out.parent / "work", documents=documents, min_cosine=0.9999, facts=facts)


def test_both_towers_load_as_one_model_and_each_alone(adapter: Path, tmp_path: Path) -> None:
    out = tmp_path / "retriever"
    base = encoder(passage_prompt="read: ")
    figures = publish(adapter, out, ExportedTower(base, "read: "))
    assert figures["cosine_min"] >= 0.9999 and figures["document_cosine_min"] >= 0.9999
    trained = encoder("ask: ")
    load_adapter(trained, adapter)
    wanted, passage = trained.encode([TEXT], prompt="ask: ")[0], base.encode([TEXT], prompt="read: ")[0]
    both = SentenceTransformer(str(out))
    assert both.prompts == {"query": "ask: ", "document": "read: "}
    assert float(np.dot(both.encode_query([TEXT])[0], wanted)) > 0.9999
    assert float(np.dot(both.encode_document([TEXT])[0], passage)) > 0.9999
    assert float(np.dot(both.encode([f"read: {TEXT}"])[0], passage)) > 0.9999, "without a task it is a document"
    assert float(np.dot(passage, wanted)) < 0.99, "the adapter changed nothing"
    for tower, text, vector in (("query", f"ask: {TEXT}", wanted), ("document", f"read: {TEXT}", passage)):
        assert float(np.dot(SentenceTransformer(str(out / tower)).encode([text])[0], vector)) > 0.9999
        model, tokenizer = AutoModel.from_pretrained(out / tower), AutoTokenizer.from_pretrained(out / tower)
        with torch.no_grad():
            mean = model(**tokenizer([text], return_tensors="pt")).last_hidden_state[0].mean(0)
        assert float(np.dot((mean / mean.norm()).numpy(), vector)) > 0.9999
    suffixes = {path.suffix for path in out.rglob("*") if path.is_file()}
    assert suffixes <= {".safetensors", ".json", ".txt", ".md"}
    assert len([*out.rglob("model.safetensors")]) == 2, "no weights are written twice"
    assert "It loads in sentence-transformers 5 and newer; older versions" in (out / "README.md").read_text()
    assert read_json(out / "harr.json")["index_identity"] == "i"


def test_what_version_6_alone_reads_is_not_written(adapter: Path, tmp_path: Path) -> None:
    """Version 5, vLLM and text-embeddings-inference fail at these names or use another pooling (docs/usage.md)."""
    out = tmp_path / "retriever"
    publish(adapter, out, ExportedTower(encoder(), ""))
    router = read_json(out / "router_config.json")
    assert router["structure"]["query"] == ["query", "query/1_Pooling", "query/2_Normalize"]
    assert router["parameters"]["default_route"] == "document"
    kinds = {module["type"] for listing in out.rglob("modules.json") for module in json.loads(listing.read_text())}
    assert kinds | {*router["types"].values()} == {
        f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize", "Router")
    }
    others = ("cls_token", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    pooling: dict[str, Any] = {f"pooling_mode_{name}": False for name in others}
    pooling |= {"pooling_mode": "mean", "pooling_mode_mean_tokens": True, "include_prompt": True}
    for tower in ("query", "document"):
        assert read_json(out / tower / "1_Pooling/config.json") == pooling | {"word_embedding_dimension": WIDTH}
        settings = read_json(out / tower / "sentence_bert_config.json")
        assert settings == {"max_seq_length": 64, "do_lower_case": False}
    with pytest.raises(ModelError, match="retriever holds several towers, of which one is expected; name its folder"):
        Encoder(str(out), max_tokens=64)
    (out / "sha256sums.txt").unlink()
    outside = {"types": {"../query": "sentence_transformers.models.Transformer"}}
    write_json(out / "router_config.json", router | outside)
    with pytest.raises(ModelError, match="outside its folder"):
        Encoder(str(out), max_tokens=64)


def test_code_of_another_repository_is_not_named(tmp_path: Path) -> None:
    """MLflow's loader would fetch and run it (``trust_remote_code``)."""
    base = encoder()
    base.model[0].auto_model.config.auto_map = {"AutoModel": "owner/name--modeling.Model"}
    save_stock(base.model, tmp_path / "model", base)
    assert not [path for path in (tmp_path / "model").rglob("*.json") if b"auto_map" in path.read_bytes()]
    assert SentenceTransformer(str(tmp_path / "model")).encode([TEXT]).shape == (1, WIDTH)


def test_queries_alone_are_one_plain_folder(tmp_path: Path) -> None:
    out = tmp_path / "retriever"
    trained = encoder("ask: ", model=PACKAGED)
    adapter = save_moved(trained, tmp_path / "adapter", 1, std=0.05)
    wanted = trained.encode([TEXT], prompt="ask: ")[0]
    assert "document_cosine_min" not in publish(adapter, out, facts=ALL_FACTS | {"towers": "query"}, model=PACKAGED)
    assert not (out / "router_config.json").exists() and (out / "model.safetensors").exists()
    assert float(np.dot(SentenceTransformer(str(out)).encode_query([TEXT])[0], wanted)) > 0.9999


def test_a_trained_tower_of_documents_is_merged_too(adapter: Path, tmp_path: Path) -> None:
    second = save_moved(encoder(), tmp_path / "second", 2)
    publish(adapter, tmp_path / "retriever", ExportedTower(encoder(), "", second))
    base, trained = encoder(), encoder()
    load_adapter(trained, second)
    wanted = trained.encode([TEXT])[0]
    assert float(np.dot(wanted, base.encode([TEXT])[0])) < 0.99, "the adapter changed nothing"
    assert float(np.dot(SentenceTransformer(str(tmp_path / "retriever")).encode_document([TEXT])[0], wanted)) > 0.9999


@pytest.mark.fault(29)
def test_what_is_no_adapter_of_this_base_or_differs_from_it_is_not_written(adapter: Path, tmp_path: Path) -> None:
    tower = ExportedTower(encoder("ask: "), "ask: ", adapter)
    with pytest.raises(ModelError, match=r"at least 1\.1 is wanted; nothing was written"):
        merge(tower, tmp_path / "out", tmp_path / "work", min_cosine=1.1, facts=ALL_FACTS)
    write_json(adapter / "harr.json", {"base": "0123", "base_model": "other"})
    with pytest.raises(ModelError, match="was trained from encoder 0123"):
        publish(adapter, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ModelError, match="holds no adapter"):
        load_adapter(encoder(), tmp_path)
