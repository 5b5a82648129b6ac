"""Stage merge: fold the adapter into the encoder and save a stock sentence-transformers folder."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from harr.embed.encoder import Encoder
from harr.errors import ModelError
from harr.io.files import draft, read_json, write_json, write_text
from harr.io.model_folder import KINDS
from harr.merge.card import RETRIEVER, folder_card, purpose
from harr.rag.policies.encoder_adapter import EVIDENCE, load_adapter

PROBES = (
    "Query: Where was she born?",
    "Query: Who founded the firm that publishes the novel?",
    'Original Question: Where was the founder of Acme born?\nHistory: [{"sub_query": "Who founded Acme?", '
    '"status": "FOUND", "answer": "Ada Brown"}]\nQuery: Where was she born?',
    "What is the capital of the country whose longest river flows through the town where the author grew up?",
    "A single word",
    "Harbour " * 120,
)
"""Texts of several lengths on which adapter and merged model must agree."""

KEPT = KINDS - {".jinja", ".model"}
"""What an encoder's folder holds."""


def merge(
    encoder: Encoder, adapter: Path, out: Path, work: Path, *, min_cosine: float, facts: Mapping[str, str]
) -> dict[str, float]:
    """Merge ``adapter`` into ``encoder`` and publish the model folder ``out``.

    The folder is reloaded from disk and compared with the adapter on probe texts before it appears.

    Returns:
        The lowest and mean cosine between adapter and merged model, and the number of probes.

    Raises:
        ModelError: the adapter belongs to another base, or the reloaded model disagrees with it.
    """
    handle = load_adapter(encoder, adapter)
    wanted_ND = encoder.encode(PROBES, prompt=encoder.query_prompt)
    if handle is not None:
        handle.merge_and_unload()
    with draft(work / "retriever", out) as folder:
        save_stock(encoder.model, folder, encoder)
        known = {**read_json(adapter / "harr.json"), **facts}
        card = folder_card(RETRIEVER, known, title="A query encoder trained by harr", what=purpose(known))
        write_text(folder / "README.md", card)
        if (adapter / EVIDENCE).exists():
            shutil.copy(adapter / EVIDENCE, folder / EVIDENCE)
        write_json(folder / "harr.json", known)
        cosines_N = _reloaded_cosines(folder, wanted_ND)
        if cosines_N.min() < min_cosine:
            raise ModelError(
                f"merged model differs from its adapter: cosine {cosines_N.min():.6f} on a probe, at least "
                f"{min_cosine} is wanted; nothing was written; check that encoder.model is the base that was trained"
            )
    return {
        "probes": float(len(cosines_N)),
        "cosine_min": float(cosines_N.min()),
        "cosine_mean": float(cosines_N.mean()),
    }


def save_stock(model: SentenceTransformer, folder: Path, encoder: Encoder) -> None:
    """Save a model with the prompts of ``encoder``, without what a reloaded folder does not need: a chat template, or a
    tokenizer's own format."""
    model.prompts = {"query": encoder.query_prompt, "document": encoder.passage_prompt}
    model.save_pretrained(str(folder), create_model_card=False)
    for path in [path for path in folder.rglob("*") if path.is_file() and path.suffix not in KEPT]:
        path.unlink()


def _reloaded_cosines(folder: Path, wanted_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the cosine per probe between the adapter's vectors and those of the folder as a user loads it."""
    if (folder / "config.json").exists():  # a table of token vectors has none
        _, report = AutoModel.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, output_loading_info=True
        )
        if report["missing_keys"]:
            raise ModelError(
                f"merged model lacks weights: {', '.join(sorted(report['missing_keys'])[:3])}; nothing was written"
            )
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    found_ND = np.asarray(model.encode_query(list(PROBES), normalize_embeddings=True), dtype=np.float32)
    cosines_N: NDArray[np.float32] = (wanted_ND * found_ND).sum(-1)
    return cosines_N
