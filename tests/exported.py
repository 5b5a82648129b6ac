"""A retriever whose query tower is far from its base, in the folder that stage merge writes."""

from pathlib import Path

import torch

from harr.embed.encoder import Encoder
from harr.io.model_folder import PACKAGED
from harr.merge.retriever import ExportedTower, merge
from harr.rag.policies.encoder_adapter import add_adapter, save_adapter

FACTS = {"statuses": True, "history": True, "retriever": {"state": "lines", "max_tokens": 64}}


def export_moved(out: Path, work: Path, towers: str = "both", base_model: str = PACKAGED) -> Path:
    """Write it to ``out``, with prompts: both towers, or the query tower alone (``query``)."""
    base, queries, moved = (
        Encoder(base_model, max_tokens=64, query_prompt="ask: ", passage_prompt="read: ") for _ in range(3)
    )
    handle = add_adapter(moved, rank=4, alpha=8, seed=0)
    with torch.no_grad():
        for name, weight in handle.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.05, generator=torch.Generator().manual_seed(1))
    save_adapter(handle, moved, work / "adapter")
    documents = ExportedTower(base, "read: ") if towers == "both" else None
    tower = ExportedTower(queries, "ask: ", work / "adapter")
    merge(tower, out, work / "merge", documents=documents, min_cosine=0.9999, facts=FACTS | {"towers": towers})
    return out
