"""Rows of sentences: encoded once, stale after an update, with the same values as from turning every vector."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from harr.embed.encoder import Encoder
from harr.rag.policies.q_values import rotate, values
from harr.rag.policies.sentence_vectors import Sentences
from harr.rag.policies.two_tower import BLOCK, TwoTowerPolicy
from harr.types import Passage, Question


class Tower:
    """Encodes a text as its length and the number of updates; records what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.version = 0.0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        return np.array([[len(text), self.version] for text in texts], dtype=np.float32)


@pytest.mark.fault(7)
def test_each_sentence_is_encoded_once_and_stale_ones_once_more() -> None:
    tower, sentences = Tower(), Sentences()
    first = sentences.document("a", lambda: ["x", "yy", "x"])
    sentences.prepare(first, tower.encode)
    second = sentences.document("b", lambda: ["zzz", "yy"])
    sentences.prepare(second, tower.encode)
    assert tower.asked == ["x", "yy", "zzz"]
    tower.version = 1.0
    sentences.invalidate(["yy", "never seen"])
    sentences.prepare(sentences.document("a", list), tower.encode)  # its rows are known: no text is requested
    assert tower.asked[3:] == ["yy"]
    assert sentences.gather(first).tolist() == [[1, 0], [2, 1], [1, 0]], "rows stay valid"
    assert sentences.gather(second).tolist() == [[3, 0], [2, 1]]
    sentences.invalidate()
    rows = sentences.document("a", lambda: ["yy"])
    sentences.prepare(rows, tower.encode)
    assert rows.tolist() == [0] and tower.asked[4:] == ["yy"], "all is forgotten"


@pytest.mark.parametrize("mode", ["none", "relative"])
def test_a_document_longer_than_a_block_is_scored_whole(mode: str, tiny: str) -> None:
    encoder = Encoder(tiny, max_tokens=16)
    towers = TwoTowerPolicy(encoder, encoder, None, mode=mode, temperature=0.1, max_tokens=16)
    texts = [f"Town {number % 40} is open." for number in range(BLOCK + 30)]
    document = towers.attach_document(Question("q", "?"), tuple(Passage(f"p{i}", text) for i, text in enumerate(texts)))
    state = torch.from_numpy(encoder.encode(["Which town?"]))[0]
    vectors = torch.from_numpy(encoder.encode(texts[:40]))[[number % 40 for number in range(len(texts))]]
    turned = rotate(vectors, towers.positions(document, [7]))
    expected = values(state[None], turned[None])[:, 0]
    torch.testing.assert_close(towers.critics(state, document, [7]), expected, atol=2e-5, rtol=1e-5)
