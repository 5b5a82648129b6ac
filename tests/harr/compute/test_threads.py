"""One thread or two: the same ids in the same order, with scores that differ by less than ``TOLERANCE``."""

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
"""Tolerance of a cosine: 32-bit floats are summed in another order (docs/faults.md)."""


def found(folder: Path, model: str, threads: int) -> tuple[Any, ...]:
    """Return each question's ten best by vector, words and plain product; then the vectors and scores."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        encoder, passages = Encoder(model, max_tokens=64), Passages.open(folder / "corpus")
        asked = [f"What is it like where it is {word}?" for word in ("warm", "cold", "snowy", "full of fruit", "near")]
        passages_ND = encoder.encode(passages.contents(0, len(passages)), prompt=encoder.passage_prompt)
        asked_QD = encoder.encode(asked, prompt=encoder.query_prompt)
        identity = Vectors.open(folder / "vectors").identity
        with PassageIndex.open(folder / "index", IndexParams(), identity=identity) as index:
            dense, text = index.search(asked_QD, 10), index.search_text(asked, 10)
    finally:
        torch.set_num_threads(before)
    own = np.argsort(-(asked_QD @ passages_ND.T), kind="stable")
    return dense[0], text[0], own, passages_ND, dense[1], text[1]


def test_rankings_do_not_depend_on_the_number_of_threads(corpus: Any, tiny: str) -> None:
    one, two = found(corpus.folder, tiny, 1), found(corpus.folder, tiny, 2)
    for place, (first, second) in enumerate(zip(one, two, strict=True)):
        np.testing.assert_allclose(first, second, atol=0 if place < 3 else TOLERANCE, rtol=0)
