"""A cache of embeddings by text: after a corpus changed, only new texts are embedded."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from harr.corpus.passages import Passages
from harr.corpus.vectors import MANIFEST_KEYS, Vectors
from harr.embed.encoder import Encoder
from harr.embed.served import ServedEncoder
from harr.errors import DamagedFile
from harr.io.files import read_manifest

CHECKED = 8
"""Number of cached texts that are embedded again to check the cache."""
SERVED_COSINE = 0.9999
"""Minimum cosine of these if a server computes, whose last bits may differ."""


def text_hashes(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Return the first half of each text's SHA-256 as two numbers, shape (n, 2).

    >>> text_hashes(["a", "a", "b"])[:, 0].tolist() == text_hashes(["a", "b"])[[0, 0, 1], 0].tolist()
    True
    """
    digests = b"".join(hashlib.sha256(text.encode()).digest()[:16] for text in texts)
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)


def embedding_facts(manifest: Mapping[str, Any]) -> list[Any]:
    """Return what must match for a text to have the same vector: encoder (with prompts and limit), dtype and width."""
    return [manifest.get(key) for key in ("encoder", "dtype", "width")]


class TextTable:
    """The rows of texts, looked up by hash."""

    def __init__(self, hashes_R2: NDArray[np.uint64]) -> None:
        """Sort the hashes of all rows."""
        self._hashes_R2 = hashes_R2
        self._order = np.argsort(hashes_R2[:, 0], kind="stable")
        self._sorted = hashes_R2[self._order, 0]

    def rows(self, hashes_N2: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return each text's row, -1 if it is new, shape (n,).

        >>> TextTable(text_hashes(["a", "b"])).rows(text_hashes(["b", "c"])).tolist()
        [1, -1]
        """
        if not len(self._order):
            return np.full(len(hashes_N2), -1)
        places = np.searchsorted(self._sorted, hashes_N2[:, 0]).clip(max=len(self._sorted) - 1)
        rows = self._order[places]
        return np.where((self._hashes_R2[rows] == hashes_N2).all(axis=1), rows, -1)


class EmbeddingCache:
    """The previous corpus's vectors, by text."""

    def __init__(self, vectors: Vectors, texts_R3: NDArray[np.uint64]) -> None:
        """Take vectors and, per row, the text's hash (two numbers) and its number of tokens; use :meth:`open`."""
        self._vectors, self._texts_R3, self._table = vectors, texts_R3, TextTable(texts_R3[:, :2])

    @classmethod
    def open(cls, folder: Path, manifest: Mapping[str, Any]) -> "EmbeddingCache | None":
        """Open another corpus's published vectors that agree with ``manifest``; None if there are none.

        Vectors of the same corpus are ignored: a user who embeds it again wants new vectors.
        """
        try:
            published = read_manifest(folder, "", shards=False, keys=MANIFEST_KEYS)
            if published.get("corpus") == manifest["corpus"] or embedding_facts(published) != embedding_facts(manifest):
                return None
            vectors = Vectors.open(folder)
            texts = [np.load(folder / shard["texts"]["file"], allow_pickle=False) for shard in published["shards"]]
        except (DamagedFile, OSError, ValueError, KeyError, TypeError):  # missing, damaged, or from an older harr
            return None
        return cls(vectors, np.concatenate(texts))

    def rows(self, hashes_N2: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return each text's row, -1 if it is new, shape (n,)."""
        return self._table.rows(hashes_N2)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return vectors, shape (n, D)."""
        return self._vectors.take(rows)

    def tokens(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return each text's number of tokens before truncation."""
        return self._texts_R3[rows, 2]


def check_cache(
    cache: EmbeddingCache | None,
    passages: Passages,
    encoder: Encoder,
    embedder: Encoder | ServedEncoder,
    batch_size: int,
) -> EmbeddingCache | None:
    """Return the cache if a sample of its texts gets the same bytes today; otherwise print that and return None.

    Libraries, kernels and code affect the last bits, too, and no identity covers them. If the sample has no cached
    text, few texts are cached, so all are embedded.
    """
    if cache is None:
        return None
    rows = np.unique(np.linspace(0, len(passages) - 1, 8 * CHECKED).astype(np.int64))
    texts = [passage.content for passage in passages.take(rows.tolist())]
    places = cache.rows(text_hashes(texts))
    texts = [text for text, place in zip(texts, places, strict=True) if place >= 0][:CHECKED]
    places = places[places >= 0][:CHECKED]
    if not len(places):
        return None
    again, before = embed_passages(texts, encoder, embedder, batch_size), cache.take(places)
    cosine = float((again * before).sum(-1).min())
    if np.array_equal(again, before) or (isinstance(embedder, ServedEncoder) and cosine > SERVED_COSINE):
        return cache
    tqdm.write(f"cached texts get other bytes today (cosine {cosine:.6f}); embedding all texts again")
    return None


def embed_passages(
    texts: Sequence[str],
    encoder: Encoder,
    embedder: Encoder | ServedEncoder,
    batch_size: int,
    lengths: NDArray[np.int64] | None = None,
    **options: Any,
) -> NDArray[np.float32]:
    """Embed passages as stage embed does: except on a server, the bytes of each depend only on its own text."""
    fixed: dict[str, Any] = {} if isinstance(embedder, ServedEncoder) else {"alone": True, "lengths": lengths}
    return embedder.encode(texts, prompt=encoder.passage_prompt, batch_size=batch_size, **fixed, **options)
