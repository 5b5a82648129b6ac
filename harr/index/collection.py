"""A collection of passages in Milvus: its content, its keys, and its size.

Its property ``harr`` describes its content, so that the live collection can be compared with the manifest on every
open (Lite keeps no description). During an update it names no identity, and nobody opens it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.errors import bare
from harr.index import kinds
from harr.params.index import IndexParams
from harr.services.milvus_client import Connection, connect, explain_errors

WRITE_SECONDS = 1800.0
KEYS_PER_CALL = 10_000
"""Number of keys per request."""


class Keys:
    """The keys of the passages in an index, and the row of each: Milvus returns keys, the corpus reads rows.

    Rows move when a passage is added before them, keys (:meth:`harr.corpus.passages.Passages.keys`) do not.
    """

    def __init__(self, table_2R: NDArray[np.int64]) -> None:
        """Take ascending keys and, under each, its row."""
        self.keys, self.rows = table_2R

    @classmethod
    def of(cls, keys: NDArray[np.int64], rows: NDArray[np.int64]) -> "Keys":
        """Take keys and rows in any order."""
        order = np.argsort(keys)
        return cls(np.stack([keys[order], rows[order]]))

    @classmethod
    def open(cls, path: Path) -> "Keys":
        """Map a file of :meth:`save`; the hashes of its folder were checked."""
        return cls(np.load(path, mmap_mode="r", allow_pickle=False))

    def save(self, path: Path) -> None:
        """Write keys and rows to a file."""
        np.save(path, np.stack([self.keys, self.rows]), allow_pickle=False)

    def rows_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each key, -1 for a key of another corpus.

        >>> Keys.of(np.array([7, 3]), np.array([0, 1])).rows_of(np.array([3, 5, 7, 9])).tolist()
        [1, -1, 0, -1]
        """
        if not len(self.keys):
            return np.full(len(keys), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.rows[places], -1)


@dataclass(frozen=True, slots=True)
class Slice:
    """The passages of one collection: the whole corpus, or one of its sources.

    Attributes:
        source: its name, empty for the whole corpus.
        collection: the name in Milvus.
        rows: of the passages, ascending, (R,). keys: of the passages, (R,).
        content: value of the collection's property.
        file: name of the file with the keys.
    """

    source: str
    collection: str
    rows: NDArray[np.int64]
    keys: NDArray[np.int64]
    content: Mapping[str, Any]
    file: str

    def describe(self) -> dict[str, Any]:
        """Return its entry in the manifest."""
        return {"collection": self.collection, "rows": len(self.rows), "keys": self.file}


@dataclass(frozen=True, slots=True)
class Built:
    """The number of passages in a collection, and of those just inserted and deleted."""

    rows: int
    inserted: int
    deleted: int


def content_of(client: Connection, name: str) -> dict[str, Any]:
    """Return the content of a collection; empty if harr did not make it."""
    content: dict[str, Any] = json.loads(client.describe_collection(name)["properties"].get("harr", "{}"))
    return content


def properties(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of a collection with this content."""
    return {"harr": json.dumps(content)}


def count(client: Connection, name: str, rows: int) -> int:
    """Return the number of passages in a collection; 0 if it is unfinished."""
    if not client.list_indexes(name):
        return 0
    client.load_collection(name, timeout=kinds.build_seconds(rows))
    return int(client.query(name, output_fields=["count(*)"], consistency_level="Strong")[0]["count(*)"])


def read_keys(client: Connection, name: str, rows: int) -> NDArray[np.int64]:
    """Return the keys of all passages in a collection."""
    client.load_collection(name, timeout=kinds.build_seconds(rows))
    batches = client.query_iterator(name, batch_size=KEYS_PER_CALL, output_fields=["key"], consistency_level="Strong")
    keys: list[int] = []
    while batch := batches.next():
        keys += [int(row["key"]) for row in batch]
    batches.close()
    return np.array(keys, dtype=np.int64)


@contextmanager
def open_build(params: IndexParams, folder: Path) -> Iterator[Connection]:
    """Open a connection for a build; create the folder of Milvus Lite."""
    where = where_of(params, folder)
    if not params.uri:
        folder.mkdir(parents=True, exist_ok=True)
    connection = connect(params, where)
    try:
        with explain_errors(where):
            yield connection
    finally:
        connection.close()


def where_of(params: IndexParams, folder: Path) -> str:
    """Return the address or the file of Milvus, for connections and messages."""
    return bare(params.uri) or str((folder / "milvus.db").resolve())
