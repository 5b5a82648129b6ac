"""Passage vectors by row number: memory-mapped float32 shards, checked by hash."""

from collections.abc import Iterator, Mapping
from mmap import MADV_DONTNEED, mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.corpus.passages import Passages
from harr.errors import IndexMismatch
from harr.io.files import read_manifest

REBUILD = "dvc repro -f -s embed"
MANIFEST_KEYS = {"rows": int, "width": int, "shards": list}


def check_corpus(manifest: Mapping[str, Any], corpus: str, folder: Path) -> None:
    """Check that the ``manifest`` of ``folder`` names the corpus identity ``corpus``.

    Raises:
        IndexMismatch: it names another.
    """
    if (actual := manifest.get("corpus")) != corpus:
        raise IndexMismatch(
            f"{folder} was made of corpus {actual}, but the corpus beside it is {corpus}; run `dvc repro`, or bring "
            "back that corpus"
        )


class Vectors:
    """A corpus's vectors; row i belongs to passage i.

    Attributes:
        identity: the *index identity*, a hash of encoder (weights, pooling, prompts), dtype and corpus.
        rows: number of vectors. width: D. manifest: stage embed's manifest.
    """

    def __init__(self, manifest: dict[str, Any], shards: list[NDArray[np.float32]]) -> None:
        """Take mapped shards in row order; use :meth:`open`."""
        self.manifest = manifest
        self.identity: str = manifest["identity"]
        self.rows: int = manifest["rows"]
        self.width: int = manifest["width"]
        self._shards = shards
        self._starts = np.cumsum([0, *(len(shard) for shard in shards)])

    @classmethod
    def open(cls, folder: Path) -> "Vectors":
        """Map the shards of ``folder``, whose hashes are checked once; to search a corpus, use :meth:`of`.

        Raises:
            DamagedFile: manifest or shard is missing or changed; names it and how to rebuild it.
        """
        manifest = read_manifest(folder, REBUILD, keys=MANIFEST_KEYS, once=True)
        files = [folder / shard["file"] for shard in manifest["shards"]]
        return cls(manifest, [np.load(file, mmap_mode="r", allow_pickle=False) for file in files])

    @classmethod
    def of(cls, passages: Passages, folder: Path) -> "Vectors":
        """Map the shards of ``folder`` (:meth:`open`), which must be this corpus's; all stages open vectors here.

        Raises:
            DamagedFile: as :meth:`open`. IndexMismatch: they were made from another corpus.
        """
        manifest = read_manifest(folder, REBUILD, shards=False, keys=MANIFEST_KEYS)
        check_corpus(manifest, passages.identity, folder)
        return cls.open(folder)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of ``rows`` (any shape) in memory, shape (*rows.shape, D).

        Raises:
            IndexError: a row is outside the corpus; the caller must handle padding (-1).
        """
        wanted = np.asarray(rows, dtype=np.int64)
        flat = wanted.ravel()
        if flat.size and (flat.min() < 0 or flat.max() >= self.rows):
            raise IndexError(f"rows {flat.min()}..{flat.max()} are not all within 0..{self.rows - 1}")
        vectors = np.empty((flat.size, self.width), dtype=np.float32)
        shard_of = np.searchsorted(self._starts, flat, side="right") - 1
        for number in np.unique(shard_of):
            places = np.flatnonzero(shard_of == number)
            vectors[places] = self._shards[number][flat[places] - self._starts[number]]
        return vectors.reshape(*wanted.shape, self.width)

    def release(self) -> None:
        """Release the pages already read, so that a scan of all vectors does not fill the process's memory.

        The system's cache keeps them, so reading them again costs little.
        """
        for shard in self._shards:
            if isinstance(shard.base, mmap):
                shard.base.madvise(MADV_DONTNEED)

    def blocks(self, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield (first row, vectors of shape (up to ``size``, D)) through the whole corpus."""
        for start in range(0, self.rows, size):
            yield start, self.take(np.arange(start, min(start + size, self.rows)))
