"""Texts that were embedded before, found by their content: of a corpus that changed, only new texts are embedded."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from harr.corpus.passages import Passages
from harr.corpus.vectors import TOLD, Vectors
from harr.embed.encoder import Encoder
from harr.embed.served import ServedEncoder
from harr.errors import DamagedFile
from harr.io.files import read_manifest

CHECKED = 8
"""Number of known texts that are embedded once more before the vectors of any are taken over."""
SERVED_COSINE = 0.9999
"""Minimum cosine of these where a server computes, which promises no bits."""


def text_hashes(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Return the first half of each text's SHA-256, as two numbers, shape (n, 2).

    >>> text_hashes(["a", "a", "b"])[:, 0].tolist() == text_hashes(["a", "b"])[[0, 0, 1], 0].tolist()
    True
    """
    digests = b"".join(hashlib.sha256(text.encode()).digest()[:16] for text in texts)
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)


def what_embeds(manifest: Mapping[str, Any]) -> list[Any]:
    """Return what must be equal for a text to have the same vector: encoder (prompts and limit with it) and dtype."""
    return [manifest.get(key) for key in ("encoder", "dtype", "width")]


class Known:
    """The vectors of the corpus before, by what the texts said."""

    def __init__(self, vectors: Vectors, texts_R3: NDArray[np.uint64]) -> None:
        """Take vectors and, of every row, both halves of the text's hash and its number of tokens; use :meth:`open`."""
        self._vectors, self._texts_R3 = vectors, texts_R3
        self._order = np.argsort(texts_R3[:, 0], kind="stable")
        self._sorted = np.ascontiguousarray(texts_R3[self._order, 0])

    @classmethod
    def open(cls, folder: Path, manifest: Mapping[str, Any]) -> "Known | None":
        """Open published vectors of another corpus that were made as ``manifest`` says; None where there are none.

        Those of the same corpus are none: whoever embeds it again wants it anew.
        """
        try:
            made = read_manifest(folder, "", shards=False, keys=TOLD)
            if made.get("corpus") == manifest["corpus"] or what_embeds(made) != what_embeds(manifest):
                return None
            vectors = Vectors.open(folder)
            texts = [np.load(folder / shard["texts"]["file"], allow_pickle=False) for shard in made["shards"]]
        except (DamagedFile, OSError, ValueError, KeyError, TypeError):  # nothing there, damaged, or of an older harr
            return None
        return cls(vectors, np.concatenate(texts))

    def rows(self, hashes_N2: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the row of each text, -1 where it is new, shape (n,)."""
        places = np.searchsorted(self._sorted, hashes_N2[:, 0]).clip(max=len(self._sorted) - 1)
        rows = self._order[places]
        return np.where((self._texts_R3[rows, :2] == hashes_N2).all(axis=1), rows, -1)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return vectors, shape (n, D)."""
        return self._vectors.take(rows)

    def tokens(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return how many tokens each text has, before any cut."""
        return self._texts_R3[rows, 2]


def checked(
    known: Known | None, passages: Passages, encoder: Encoder, used: Encoder | ServedEncoder, batch_size: int
) -> Known | None:
    """Return what is ``known``, if some of its texts get the same bytes today; else None, with a line that says so.

    Libraries, kernels and code shape the last bits, too, and no identity tells of them. Where none of the texts that
    are looked at is known, few are, and all are embedded.
    """
    if known is None:
        return None
    rows = np.unique(np.linspace(0, len(passages) - 1, 8 * CHECKED).astype(np.int64))
    texts = [passage.content for passage in passages.take(rows.tolist())]
    places = known.rows(text_hashes(texts))
    texts = [text for text, place in zip(texts, places, strict=True) if place >= 0][:CHECKED]
    places = places[places >= 0][:CHECKED]
    if not len(places):
        return None
    again, before = encoded(texts, encoder, used, batch_size), known.take(places)
    cosine = float((again * before).sum(-1).min())
    if np.array_equal(again, before) or (isinstance(used, ServedEncoder) and cosine > SERVED_COSINE):
        return known
    tqdm.write(f"texts embedded before get other bytes today (cosine {cosine:.6f}); embedding all of them anew")
    return None


def encoded(
    texts: Sequence[str], encoder: Encoder, used: Encoder | ServedEncoder, batch_size: int, **told: Any
) -> NDArray[np.float32]:
    """Embed passages as stage embed does: the bytes of each depend on its own text alone, but for a server's."""
    apart: dict[str, Any] = {} if isinstance(used, ServedEncoder) else {"alone": True}
    return used.encode(texts, prompt=encoder.passage_prompt, batch_size=batch_size, **apart, **told)
