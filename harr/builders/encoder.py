"""Section ``encoder`` becomes what embeds: the model in this process, a server of it, or that of a worker."""

import platform
import threading
from pathlib import Path
from typing import Any

from harr.compute import distributed
from harr.corpus.passages import Passages
from harr.embed.encoder import Encoder
from harr.embed.served import ServedEncoder
from harr.embed.shards import computing, embed_shard
from harr.errors import IndexMismatch, ModelError
from harr.io.files import read_json, read_manifest
from harr.io.model_folder import DOCUMENT, find_folder, query_tower
from harr.params.embed import EmbedParams, EncoderParams
from harr.rag.policies.encoder_adapter import load_adapter

_HELD = threading.local()
"""What a worker embeds with; it is kept from one shard to the next, as loading it may take longer than a shard."""


def build_encoder(section: EncoderParams, model: str = "") -> Encoder:
    """Return the encoder of params.yaml, or another ``model`` with the same limits and prompts."""
    return Encoder(
        model or section.model,
        max_tokens=section.max_tokens,
        query_prompt=section.query_prompt,
        plain_prompt=section.plain_prompt,
        passage_prompt=section.passage_prompt,
        device=distributed.device(),
    )


def query_section(section: EncoderParams, model: str) -> EncoderParams:
    """Return what reads states, in the shape of section ``encoder``: itself, or the folder ``retriever.encoder``.

    The prompt of such a folder is its own: the map in it was learnt with that.

    Raises:
        ModelError: it is no folder of `harr bridge` or of stage merge.
    """
    if not model:
        return section
    folder = find_folder(model, "retriever.encoder")
    if not made_for(model):
        raise ModelError(
            f"retriever.encoder {model} does not say whose vectors it reads states for; run `harr bridge --model "
            f"{model}`, and name the folder that it writes"
        )
    if (tower := query_tower(folder)) != folder:
        model = str(tower)
    prompts = read_json(tower / "config_sentence_transformers.json").get("prompts", {})
    return section.model_copy(update={"model": model, "query_prompt": prompts.get("query", ""), "plain_prompt": None})


def made_for(model: str) -> str:
    """Return the identity of the encoder whose vectors a folder reads states for; empty where it tells none."""
    told = find_folder(model, "retriever.encoder") / "harr.json"
    return str(read_json(told).get("documents", "")) if told.exists() else ""


def build_served_encoder(section: EncoderParams, encoder: Encoder) -> ServedEncoder | None:
    """Return the server that embeds passages in place of ``encoder``, where params.yaml names one."""
    return ServedEncoder(encoder, section.base_url, section.key_variable) if section.base_url else None


def trained_encoder(section: EncoderParams, folder: Path) -> Encoder:
    """Return an encoder from the folder of an adapter or of a merged model; ``section`` is of what reads states.

    Raises:
        ModelError: there is no such folder.
    """
    if not folder.is_dir():
        raise ModelError(f"trained model {folder} does not exist; run `dvc repro`, or name a folder that does")
    if (folder / "modules.json").exists():
        return build_encoder(section, str(query_tower(folder)))
    encoder = build_encoder(section)
    load_adapter(encoder, folder)
    return encoder


def action_folder(folder: Path) -> Path | None:
    """Return the folder of the trained tower of actions, of an adapter or of a merged model; None where there is none.

    In a merged model it is the tower of documents.
    """
    told = folder / "harr.json"
    names = ("action", DOCUMENT) if told.exists() and "positions" in read_json(told) else ("action",)
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def embed_as_worker(
    section: EncoderParams, embed: EmbedParams, corpus: Path, folder: Path, number: int
) -> dict[str, Any]:
    """Make a shard in a thread or process that was given nothing but paths (:func:`harr.embed.shards.embed_shard`).

    Raises:
        DamagedFile: ``corpus`` or the manifest in ``folder`` cannot be read here.
        IndexMismatch: corpus or encoder are not those of the manifest.
    """
    manifest = read_manifest(folder, "dvc repro embed", shards=False)
    wanted = (manifest["identity"], folder)
    if getattr(_HELD, "wanted", None) != wanted:
        passages, encoder = Passages.open(corpus), build_encoder(section)
        if (encoder.identity, passages.identity) != (manifest["encoder"], manifest["corpus"]):
            raise IndexMismatch(
                f"worker on {platform.node()} has encoder {encoder.identity} and corpus {passages.identity}, but "
                f"{folder} is of {manifest['encoder']} and {manifest['corpus']}; give it the same model and folder"
            )
        used = computing(encoder, manifest, build_served_encoder(section, encoder))
        _HELD.tools, _HELD.wanted = (passages, encoder, used), wanted
    passages, encoder, used = _HELD.tools
    return embed_shard(passages, encoder, used, embed, folder, number)
