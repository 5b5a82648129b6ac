"""Passage vectors by row number: memory-mapped float32 shards that were checked by hash."""

from collections.abc import Iterator, Mapping, Sequence
from mmap import MADV_DONTNEED, mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.corpus.passages import Passages
from harr.errors import IndexMismatch
from harr.io.files import read_manifest

REBUILD = "dvc repro -f -s embed"
TOLD = {"rows": int, "width": int, "shards": list}
LARGEST = 127
"""What a token vector's numbers were multiplied by before they were rounded to int8."""


def check_corpus(manifest: Mapping[str, Any], corpus: str, folder: Path) -> None:
    """Compare what the vectors of ``folder`` were made of, as their manifest tells, with the ``corpus`` identity.

    Raises:
        IndexMismatch: they are of another corpus, however many passages it has.
    """
    if (made := manifest.get("corpus")) != corpus:
        raise IndexMismatch(
            f"{folder} was made of corpus {made}, but the corpus beside it is {corpus}; run `dvc repro`, or bring "
            "back that corpus"
        )


class Vectors:
    """The vectors of a corpus; row i belongs to passage i.

    Attributes:
        identity: the *index identity*, a hash of encoder (weights, pooling, prompts), dtype and corpus.
        rows: how many. width: D. manifest: all that the embed stage wrote down about them.
        token_width: W, the length of a token's vector; 0 where there are none (``embed.tokens``).
    """

    def __init__(
        self, manifest: dict[str, Any], shards: list[NDArray[np.float32]], tokens: Sequence[NDArray[np.int8]] = ()
    ) -> None:
        """Take mapped shards in row order; use :meth:`open`."""
        self.manifest = manifest
        self.identity: str = manifest["identity"]
        self.rows: int = manifest["rows"]
        self.width: int = manifest["width"]
        self.token_width: int = tokens[0].shape[-1] if tokens else 0
        self._shards, self._tokens = shards, tokens
        self._starts = np.cumsum([0, *(len(shard) for shard in shards)])

    @classmethod
    def open(cls, folder: Path) -> "Vectors":
        """Map the shards of ``folder`` after checking their hashes; where a corpus is searched, :meth:`of` it.

        Raises:
            DamagedFile: manifest or shard missing or changed; says which and how to rebuild it.
        """
        manifest = read_manifest(folder, REBUILD, keys=TOLD)
        shards = [_mapped(folder / shard["file"]) for shard in manifest["shards"]]
        tokens = [_mapped(folder / shard["tokens"]["file"]) for shard in manifest["shards"] if "tokens" in shard]
        return cls(manifest, shards, tokens)

    @classmethod
    def of(cls, passages: Passages, folder: Path) -> "Vectors":
        """Map the shards of ``folder`` (:meth:`open`), which must be of this corpus; all stages open vectors here.

        Raises:
            DamagedFile: as :meth:`open`. IndexMismatch: they were made of another corpus.
        """
        manifest = read_manifest(folder, REBUILD, shards=False, keys=TOLD)
        check_corpus(manifest, passages.identity, folder)
        return cls.open(folder)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return vectors of ``rows`` (any shape), shape (*rows.shape, D), in memory.

        Raises:
            IndexError: a row outside the corpus; padding (-1) must be dealt with by the caller.
        """
        return self._gather(self._shards, rows)

    def tokens(self, rows: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return token vectors of ``rows`` (any shape), shape (*rows.shape, T, W), in 127ths; zeros pad short passages.

        Raises:
            IndexError: as :meth:`take`.
        """
        return self._gather(self._tokens, rows)

    def _gather(self, shards: Sequence[NDArray[Any]], rows: NDArray[np.int64]) -> NDArray[Any]:
        wanted = np.asarray(rows, dtype=np.int64)
        flat = wanted.ravel()
        if flat.size and (flat.min() < 0 or flat.max() >= self.rows):
            raise IndexError(f"rows {flat.min()}..{flat.max()} are not all within 0..{self.rows - 1}")
        vectors = np.empty((flat.size, *shards[0].shape[1:]), dtype=shards[0].dtype)
        shard_of = np.searchsorted(self._starts, flat, side="right") - 1
        for number in np.unique(shard_of):
            here = np.flatnonzero(shard_of == number)
            vectors[here] = shards[number][flat[here] - self._starts[number]]
        return vectors.reshape(*wanted.shape, *shards[0].shape[1:])

    def release(self) -> None:
        """Let go of the pages that were read, so that a scan of all vectors does not fill the process's memory.

        The system keeps them in its cache; reading them once more costs little.
        """
        mapped: list[NDArray[Any]] = [*self._shards, *self._tokens]
        for shard in mapped:
            if isinstance(shard.base, mmap):
                shard.base.madvise(MADV_DONTNEED)

    def blocks(self, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield (first row, vectors of shape (up to ``size``, D)) through the whole corpus."""
        for start in range(0, self.rows, size):
            yield start, self.take(np.arange(start, min(start + size, self.rows)))


def _mapped(path: Path) -> NDArray[Any]:
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped
