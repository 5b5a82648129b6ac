"""A tiny encoder for tests of machinery: MiniLM's tokenizer and files, two seeded layers of width 64.

It knows words but no meaning: texts that share words are near each other. A test of what is *learnt* about a language
uses MiniLM (``harr.io.model_folder.PACKAGED``); every other one uses this.
"""

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from harr.io.model_folder import PACKAGED, find_folder

WIDTH = 64


@cache
def tiny_encoder() -> str:
    """Return the tiny encoder's folder, for ``encoder.model``; each process makes one, with equal bytes."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-")) / "tiny"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    shutil.copytree(
        find_folder(PACKAGED), folder, ignore=shutil.ignore_patterns("*.safetensors", "*.md", ".*", "data_*")
    )
    for name, changes in {
        "config.json": {
            "hidden_size": WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 128,
        },
        "1_Pooling/config.json": {"word_embedding_dimension": WIDTH},
    }.items():
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=2, sort_keys=True))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertModel(BertConfig.from_pretrained(folder))
    with torch.no_grad():
        model.embeddings.word_embeddings.weight *= 5  # words count more than their positions
    model.save_pretrained(folder)
    return str(folder)
