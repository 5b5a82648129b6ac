"""Export a retriever: fold what was trained into its encoder, as a stock sentence-transformers folder."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from harr.embed.encoder import Encoder
from harr.errors import ModelError
from harr.io.files import draft, read_json, write_json, write_text
from harr.io.model_folder import DOCUMENT, KINDS, QUERY, load_safely, needs_package
from harr.merge.card import model_card, purpose, usage
from harr.merge.portable import make_portable, write_router
from harr.rag.policies.encoder_adapter import LINK_FEATURES, load_adapter, scorers

PROBES = (
    "Query: Where was she born?",
    "Query: Who founded the firm that publishes the novel?",
    'Original Question: Where was the founder of Acme born?\nHistory: [{"sub_query": "Who founded Acme?", '
    '"status": "FOUND", "answer": "Ada Brown"}]\nQuery: Where was she born?',
    "What is the capital of the country whose longest river flows through the town where the author grew up?",
    "A single word",
    "Harbour " * 120,
)
"""Texts of various lengths on which adapter and merged model must agree."""

KEPT_SUFFIXES = KINDS - {".jinja", ".model"}
"""Suffixes of the files in an encoder's folder."""


@dataclass(frozen=True)
class ExportedTower:
    """An encoder to publish, with its trained adapter; without ``adapter`` it is published unchanged."""

    encoder: Encoder
    prompt: str
    """Prompt that precedes each of its texts, queries or passages."""
    adapter: Path | None = None


def merge(
    queries: ExportedTower | None,
    out: Path,
    work: Path,
    *,
    documents: ExportedTower | None = None,
    min_cosine: float,
    facts: Mapping[str, Any],
) -> dict[str, float]:
    """Merge the adapters into their encoders and publish the model folder ``out``.

    With ``documents`` it has two towers, ``query`` and ``document``, each a whole model folder, combined by
    sentence-transformers' ``Router``; otherwise it is the query model. Without ``queries`` it has no model: the search
    uses only words. harr.json combines that of the queries' adapter with ``facts``. Before publication the folder is
    reloaded from disk and compared with the adapters on probe texts.

    Returns:
        The lowest and mean cosine between adapter and merged model, and the number of probes; those of the document
        tower as ``document_...``.

    Raises:
        ModelError: an adapter belongs to another base, or the reloaded model disagrees with it.
    """
    adapter = queries.adapter if queries else None
    adapter_vectors = {}
    with draft(work / "retriever", out) as folder:
        towers = {QUERY: (queries, folder / QUERY if documents else folder)} if queries else {}
        if documents:
            towers[DOCUMENT] = (documents, folder / DOCUMENT)
        for name, (tower, place) in towers.items():
            handle = load_adapter(tower.encoder, tower.adapter) if tower.adapter else None
            adapter_vectors[name] = tower.encoder.encode(_probes(tower.encoder.model), prompt=tower.prompt)
            if handle is not None:
                handle.merge_and_unload()
            save_stock(tower.encoder.model, place, tower.encoder)
            _check_weights(place)
        if documents:
            write_router(folder)
        harr_json = {**(read_json(adapter / "harr.json") if adapter else {}), **facts}
        card = {"title": "A retriever of harr", "what": purpose(harr_json), "use": usage(harr_json)}
        write_text(folder / "README.md", model_card("retriever", harr_json, **card))
        for name in (LINK_FEATURES, *scorers()):
            if adapter and (adapter / name).exists():
                shutil.copy(adapter / name, folder / name)
        write_json(folder / "harr.json", harr_json)
        return _compare_vectors(folder, adapter_vectors, min_cosine) if queries else {}


def _compare_vectors(folder: Path, expected: Mapping[str, NDArray[np.float32]], min_cosine: float) -> dict[str, float]:
    """Return cosines between each tower's ``expected`` vectors and those of the folder as a user loads it.

    Raises:
        ModelError: a cosine is too low.
    """
    places = {name: folder / name if DOCUMENT in expected else folder for name in expected}
    if any(map(needs_package, places.values())):
        models = {name: load_safely(SentenceTransformer, name, place, "cpu") for name, place in places.items()}
    else:
        models = dict.fromkeys(expected, SentenceTransformer(str(folder), device="cpu", local_files_only=True))
    figures: dict[str, float] = {}
    for name, expected_ND in expected.items():
        model = models[name]
        encode = model.encode_query if name == QUERY else model.encode_document
        merged_ND = np.asarray(encode(_probes(model), normalize_embeddings=True), dtype=np.float32)
        cosines_N = (expected_ND * merged_ND).sum(-1) / np.linalg.norm(expected_ND, axis=-1)
        if cosines_N.min() < min_cosine:
            raise ModelError(
                f"merged model differs from its adapter: cosine {cosines_N.min():.6f} on a probe, at least "
                f"{min_cosine} is wanted; nothing was written; check that encoder.model is the base that was trained"
            )
        cosines = {"probes": len(cosines_N), "cosine_min": cosines_N.min(), "cosine_mean": cosines_N.mean()}
        prefix = "" if name == QUERY else f"{name}_"
        figures |= {f"{prefix}{key}": float(value) for key, value in cosines.items()}
    return figures


def _probes(model: SentenceTransformer) -> list[str]:
    """Return texts on which two forms of a model are compared; a model that knows only certain texts names them."""
    return list(getattr(model[0], "samples", PROBES))


def save_stock(model: SentenceTransformer, folder: Path, encoder: Encoder) -> None:
    """Save a model with the prompts of ``encoder`` so that every loader reads it, without files that no loader needs,
    such as a chat template or a tokenizer's own format."""
    model.prompts = {"query": encoder.query_prompt, "document": encoder.passage_prompt}
    model.save_pretrained(str(folder), create_model_card=False)
    for path in [path for path in folder.rglob("*") if path.is_file() and path.suffix not in KEPT_SUFFIXES]:
        path.unlink()
    for path in folder.rglob("config.json"):
        # Code from another repository: we never load it, but MLflow's loader would.
        if "auto_map" in (config := read_json(path)):
            write_json(path, {key: value for key, value in config.items() if key != "auto_map"})
    make_portable(folder, encoder.max_tokens)


def _check_weights(folder: Path) -> None:
    """Refuse a folder whose missing weights AutoModel would fill with random ones."""
    if (folder / "config.json").exists():  # a table of token vectors has no config.json
        _, report = AutoModel.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, output_loading_info=True
        )
        if report["missing_keys"]:
            raise ModelError(
                f"merged model lacks weights: {', '.join(sorted(report['missing_keys'])[:3])}; nothing was written"
            )
