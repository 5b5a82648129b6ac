"""Stages download, embed and index of a small world in the current folder; stopped builds; given vectors."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pymilvus import MilvusClient

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.datasets.download import download
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.index.build import build_index
from harr.io.files import sha256, write_json
from harr.params import Params
from tasks.paths import CORPUS, INDEX, QUESTIONS, VECTORS, WORK


def stop_inserting(patch: pytest.MonkeyPatch, after: int) -> None:
    """Let this many batches be inserted into Milvus, and then stop as if by Ctrl-C."""
    insert, batches = MilvusClient.insert, []

    def stopped(client: MilvusClient, *values: object, **named: object) -> None:
        insert(client, *values, **named)
        batches.append(1)
        if len(batches) == after:
            raise KeyboardInterrupt

    patch.setattr(MilvusClient, "insert", stopped)


def index_world(params: Params) -> None:
    """Run these stages with vectors in float32."""
    download(params.download, CORPUS, QUESTIONS, WORK / "download")
    passages, encoder = Passages.open(CORPUS), Encoder(params.encoder.model, max_tokens=params.encoder.max_tokens)
    embed_corpus(passages, encoder, params.embed.model_copy(update={"dtype": "float32"}), VECTORS, WORK / "embed")
    build_index(passages, Vectors.open(VECTORS), params.index, INDEX, WORK / "index")


def write_vectors(folder: Path, vectors_ND: NDArray[np.float32], identity: str) -> Vectors:
    folder.mkdir()
    np.save(folder / "vectors-00000.npy", vectors_ND)
    shard = {"file": "vectors-00000.npy", "rows": len(vectors_ND), "sha256": sha256(folder / "vectors-00000.npy")}
    size = {"rows": len(vectors_ND), "width": vectors_ND.shape[1]}
    write_json(folder / "manifest.json", {"identity": identity, **size, "shards": [shard]})
    return Vectors.open(folder)
