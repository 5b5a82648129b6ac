"""A collection of passages in Milvus: its content and its size.

Its property ``harr`` describes its content, with which every open compares the manifest (Lite stores no description).
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


@dataclass(frozen=True, slots=True)
class Slice:
    """The passages of one collection: the whole corpus, or one of its sources.

    Attributes:
        source: the source's name, "" for the whole corpus.
        collection: the name in Milvus.
        rows: rows of the passages, ascending, (R,).
        content: value of the collection's property.
    """

    source: str
    collection: str
    rows: NDArray[np.int64]
    content: Mapping[str, Any]

    def describe(self) -> dict[str, Any]:
        """Return the manifest entry."""
        return {"collection": self.collection, "rows": len(self.rows)}


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
    """Return Milvus's address or file, for connections and messages."""
    return bare(params.uri) or str((folder / "milvus.db").resolve())
