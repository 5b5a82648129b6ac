"""One thread or two: the same ids in the same order; scores differ by less than ``TOLERANCE``."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.index.passage_index import PassageIndex
from harr.params.index import IndexParams

TOLERANCE = 1e-6
"""Of a cosine: sums of 32-bit floats in another order (docs/faults.md)."""


def found(folder: Path, model: str, threads: int) -> dict[str, Any]:
    """Vectors of all passages, and the ten best of every question by vector and by words."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        encoder, passages = Encoder(model, max_tokens=64), Passages.open(folder / "corpus")
        texts = passages.contents(0, len(passages))
        asked = [f"What is it like where it is {word}?" for word in ("warm", "cold", "snowy", "full of fruit", "near")]
        passages_ND = encoder.encode(texts, prompt=encoder.passage_prompt)
        asked_QD = encoder.encode(asked, prompt=encoder.query_prompt)
        identity = Vectors.open(folder / "vectors").identity
        with PassageIndex.open(folder / "index", IndexParams(), identity=identity) as index:
            dense, text = index.search(asked_QD, 10), index.search_text(asked, 10)
    finally:
        torch.set_num_threads(before)
    own = np.lexsort((np.broadcast_to(np.arange(len(texts)), (len(asked), len(texts))), -(asked_QD @ passages_ND.T)))
    return {"vectors": passages_ND, "ids": [dense[0], text[0], own], "scores": [dense[1], text[1]]}


def test_rankings_do_not_depend_on_the_number_of_threads(corpus: Any, tiny: str) -> None:
    one, two = found(corpus.folder, tiny, 1), found(corpus.folder, tiny, 2)
    for first, second in zip(one["ids"], two["ids"], strict=True):
        np.testing.assert_array_equal(first, second)
    for first, second in zip([one["vectors"], *one["scores"]], [two["vectors"], *two["scores"]], strict=True):
        np.testing.assert_allclose(first, second, atol=TOLERANCE, rtol=0)
