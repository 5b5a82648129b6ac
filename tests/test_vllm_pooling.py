"""A retriever exported by harr, behind a real vLLM on the CPU (``make vllm``)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported import export_moved
from openai import OpenAI
from sentence_transformers import SentenceTransformer
from vllm_cpu import START, vllm

from harr.embed.encoder import Encoder
from harr.embed.served import ServedEncoder
from harr.params.servers import ServerParams

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(2 * START)]
TEXTS = ["Query: Where was she born?", "Acme was founded by Ada Brown.", "Où est née l'architecte de Łódź? 東京", "x"]


def cosine(found: Any, wanted: Any) -> float:
    """Return the lowest cosine of rows."""
    one, other = (np.asarray(each, dtype=np.float64) for each in (found, wanted))
    return float(((one * other).sum(-1) / np.linalg.norm(one, axis=-1) / np.linalg.norm(other, axis=-1)).min())


def test_the_exported_query_tower_is_one_of_its_poolers(tmp_path: Path) -> None:
    """What an application without harr gets from `vllm serve models/retriever/query --runner pooling`."""
    folder = export_moved(tmp_path / "retriever", tmp_path / "work")
    own, query = SentenceTransformer(str(folder)), folder / "query"
    served = ("--runner", "pooling", "--served-model-name", str(query))
    with vllm(str(query), tmp_path / "vllm.log", *served) as server:
        client = OpenAI(base_url=f"{server.url}/v1", api_key="none")
        rows = client.embeddings.create(model=str(query), input=[f"ask: {text}" for text in TEXTS]).data
        found = [row.embedding for row in rows]
        assert cosine(found, own.encode_query(TEXTS)) >= 0.9999
        assert cosine(found, own.encode_document(TEXTS)) < 0.99, "the towers, or their prompts, differ"
        encoder = Encoder(str(query), max_tokens=64)
        pooler = ServedEncoder(encoder, ServerParams(urls=(f"{server.url}/v1",)))
        pooler.check([*TEXTS, "word " * 500])
        assert cosine(pooler.encode(TEXTS, prompt="ask: "), own.encode_query(TEXTS)) >= 0.9999
