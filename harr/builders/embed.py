"""Sections ``encoder`` and ``embed`` become what embeds a corpus: a server of the model, or the model of a worker."""

import platform
import threading
from pathlib import Path
from typing import Any

from harr.builders.encoder import build_encoder
from harr.corpus.passages import Passages
from harr.embed.encoder import Encoder
from harr.embed.known import Known, checked
from harr.embed.served import ServedEncoder
from harr.embed.shards import computing, embed_shard
from harr.errors import IndexMismatch
from harr.io.files import read_manifest
from harr.params.embed import EmbedParams, EncoderParams

_HELD = threading.local()
"""What a worker embeds with; it is kept from one shard to the next, as loading it may take longer than a shard."""


def build_served_encoder(section: EncoderParams, encoder: Encoder) -> ServedEncoder | None:
    """Return the server that embeds passages in place of ``encoder``, where params.yaml names one."""
    return ServedEncoder(encoder, section.base_url, section.key_variable) if section.base_url else None


def embed_as_worker(
    section: EncoderParams, embed: EmbedParams, corpus: Path, before: Path, folder: Path, number: int
) -> dict[str, Any]:
    """Make a shard in a thread or process that was given nothing but paths (:func:`harr.embed.shards.embed_shard`).

    What the vectors ``before`` hold is taken over, as in the process of the stage.

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
        known = checked(Known.open(before, manifest), passages, encoder, used, embed.batch_size)
        _HELD.tools, _HELD.wanted = (passages, encoder, used, known), wanted
    passages, encoder, used, known = _HELD.tools
    return embed_shard(passages, encoder, used, embed, folder, number, known)
