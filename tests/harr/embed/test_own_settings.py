"""harr follows what a model's folder says of its use: prompts, pooling, lengths and similarity.

The layouts are those of families on the hub, with random weights.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoConfig, AutoModel, AutoTokenizer

from harr.builders.encoder import build_encoder
from harr.embed.encoder import Encoder
from harr.errors import ModelError
from harr.io.files import read_json, write_json
from harr.params.embed import EncoderParams
from harr.rag.policies.state import StateFormat
from harr.types import Hop, Question, Search

TEXTS = ["Who founded Acme?", "Ada Brown founded Acme in Ashford, where she was born in 1901.", "x"]
SIZE = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}
QWEN = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
FAMILIES: dict[str, tuple[dict[str, Any], str, bool, dict[str, str]]] = {
    "e5": ({"model_type": "bert"}, "mean", True, {"query": "query: ", "passage": "passage: "}),
    "bge": ({"model_type": "bert"}, "cls", True, {}),
    "bge-m3": ({"model_type": "xlm-roberta", "pad_token_id": 0}, "cls", True, {}),
    "mxbai": ({"model_type": "bert"}, "cls", False, {"query": "Represent this sentence: "}),
    "gte": ({"model_type": "gte"}, "cls", False, {}),
    "qwen3": (
        {"model_type": "qwen3", "num_key_value_heads": 1, "head_dim": 8},
        "lasttoken",
        True,
        {"query": QWEN, "document": ""},
    ),
    "jina": ({"model_type": "bert"}, "mean", True, {"query": "query: ", "document": "document: "}),
    "nomic": ({"model_type": "nomic_bert"}, "mean", True, {"query": "search_query: ", "document": "search_document: "}),
    "modernbert": (
        {"model_type": "modernbert", "pad_token_id": 0, "local_attention": 8},
        "mean",
        True,
        {"query": "search_query: ", "passage": "search_document: "},
    ),
}


def write_model(
    folder: Path, tokenizer: str, config: Mapping[str, Any], pooling: str, unit: bool, prompts: Mapping[str, str]
) -> str:
    """Write a tiny model with random weights as a sentence-transformers folder; Qwen pads on the left."""
    torch.manual_seed(0)
    kind, own = str(config["model_type"]), {key: value for key, value in config.items() if key != "model_type"}
    words = AutoTokenizer.from_pretrained(tokenizer)
    words.padding_side = "left" if pooling == "lasttoken" else "right"
    AutoModel.from_config(AutoConfig.for_model(kind, **SIZE, vocab_size=len(words), **own)).save_pretrained(
        folder / "m"
    )
    words.save_pretrained(folder / "m")
    transformer = Transformer(str(folder / "m"), max_seq_length=32)
    modules = [transformer, Pooling(16, pooling), *([Normalize()] if unit else [])]
    model = SentenceTransformer(modules=modules, device="cpu", prompts=dict(prompts))
    model.save_pretrained(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_those_of_the_authors_call(family: str, tiny: str, tmp_path: Path) -> None:
    config, pooling, unit, prompts = FAMILIES[family]
    folder = write_model(tmp_path, tiny, config, pooling, unit, prompts)
    encoder, theirs = (
        build_encoder(EncoderParams(model=folder, max_tokens=32)),
        SentenceTransformer(folder, device="cpu"),
    )
    assert theirs.max_seq_length == 32
    queries_ND = theirs.encode_query(TEXTS, normalize_embeddings=True)
    named = {"prompt_name": "passage"} if "passage" in prompts else {}
    documents_ND = theirs.encode_document(TEXTS, normalize_embeddings=True, **named)
    np.testing.assert_allclose(encoder.encode(TEXTS, prompt=encoder.passage_prompt), documents_ND, atol=2e-6)
    # as the arm `frozen` writes its states
    search = [Search(Question("q", "Who?"), text) for text in TEXTS]
    plain = encoder.plain_prompt
    states, _ = StateFormat("json", False, 32, plain).texts(search, encoder)
    expected = queries_ND if plain else theirs.encode([f"Query: {text}" for text in TEXTS], normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode(states, prompt=plain), expected, atol=2e-6)
    wanted = [prompt for prompt in prompts.values() if prompt]
    assert [line.split(" names the ")[1] for line in encoder.describe_use()] == [
        f"{what} prompt {prompt!r}, which is used" for what, prompt in zip(("query", "document"), wanted, strict=False)
    ]


def test_a_state_has_one_label_and_what_is_set_replaces_what_the_model_names(tiny: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path, tiny, *FAMILIES["qwen3"])
    encoder = Encoder(folder, max_tokens=64)
    search = Search(Question("q", "Where was the founder born?"), "Where?", (Hop("Who founded it?", "Ada"),))
    (text,), _ = StateFormat("lines", True, 64, encoder.query_prompt).texts([search], encoder)
    assert (encoder.query_prompt + text).count("Query:") == 1 and encoder.plain_prompt == QWEN
    assert encoder.describe_use()[-1] == f"encoder.max_tokens 64 replaces 32, which {folder} names"
    set_anew = Encoder(folder, max_tokens=32, query_prompt="")
    assert set_anew.query_prompt == set_anew.plain_prompt == ""
    assert set_anew.describe_use() == [f"the query prompt '' of params.yaml replaces {QWEN!r}, which {folder} names"]
    assert set_anew.identity != encoder.identity
    assert Encoder(folder, max_tokens=32, query_prompt="q: ", plain_prompt="p: ").plain_prompt == "p: "


def test_other_similarity_and_a_cut_width_are_named_and_kept(tiny: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path, tiny, {"model_type": "bert"}, "cls", False, {})
    path = Path(folder) / "config_sentence_transformers.json"
    write_json(path, read_json(path) | {"similarity_fn_name": "dot", "truncate_dim": 8})
    encoder, theirs = Encoder(folder, max_tokens=32), SentenceTransformer(folder, device="cpu")
    assert encoder.describe_use() == [f"cosine replaces dot, by which {folder} compares: vectors get length 1"]
    assert encoder.width == 8
    np.testing.assert_allclose(encoder.encode(TEXTS), theirs.encode(TEXTS, normalize_embeddings=True), atol=2e-6)


@pytest.mark.parametrize("kind", ["bert", "NewModel"])
def test_a_model_with_code_of_its_own_is_refused_in_a_line(kind: str, tiny: str, tmp_path: Path) -> None:
    """Jina's v2 calls itself bert but has no positions: as a stock BERT it would get random ones."""
    folder = write_model(tmp_path, tiny, {"model_type": "bert"}, "mean", True, {})
    path = next(Path(folder).rglob("config.json"))
    config = json.loads(path.read_text()) | {"model_type": kind, "auto_map": {"AutoModel": "modeling.OtherModel"}}
    write_json(path, config)
    with pytest.raises(ModelError, match=r"code of its own \(OtherModel, trust_remote_code\), which is never run; use"):
        Encoder(folder, max_tokens=32)
    write_json(path, config | {"model_type": "bert", "auto_map": {"AutoModel": "modeling.BertModel"}})
    assert Encoder(folder, max_tokens=32).width == 16, "transformers has this class itself"


@pytest.mark.parametrize(("family", "reads"), [("e5", 64), ("bge-m3", 63)])
def test_more_tokens_than_the_model_has_positions_are_refused(
    family: str, reads: int, tiny: str, tmp_path: Path
) -> None:
    """RoBERTa and its kin count positions after the padding index, which is 0 here and 1 in the hub's models."""
    folder = write_model(tmp_path, tiny, *FAMILIES[family])
    with pytest.raises(
        ModelError, match=rf"^max_tokens = {reads + 1}, but \S+ reads at most {reads} tokens; lower it$"
    ):
        Encoder(folder, max_tokens=reads + 1)
    assert Encoder(folder, max_tokens=reads).encode(["word " * 100]).shape == (1, 16)
