"""Passages of a user's collection without a corpus, read as they are found."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.services.milvus_client import Connection, explain_errors
from harr.types import Passage
from harr_milvus_collections.params import AdoptParams

PER_CALL = 1_000
"""Number of passages requested at a time."""
MOST_KEPT = 100_000
"""Number of passages above which, without a corpus, the half found longest ago is forgotten."""
Hits = Sequence[tuple[str, Mapping[str, Any]]]
"""Passages by id, with their fields."""


def by_ids(
    client: Connection, section: AdoptParams, number: bool, ids: Iterable[str], fields: Sequence[str], within: str = ""
) -> list[dict[str, Any]]:
    """Return fields of passages by their ids, a ``number`` or a text; only those ``within`` a filter, if given."""
    wanted = ", ".join(ids if number else (json.dumps(name, ensure_ascii=False) for name in ids))
    asked = f"{section.id_field} in [{wanted}]" + (f" and ({within})" if within else "")
    answer: list[dict[str, Any]] = client.query(section.collection, filter=asked, output_fields=list(fields))
    return answer


class Shelf:
    """Passages of a collection found so far: rows are assigned as they come, and never reassigned.

    Row 0 is not a passage: its vector is read, but not used, if a pool is short. ``fields`` are those that are read.
    """

    def __init__(self, client: Connection, section: AdoptParams, number: bool, width: int) -> None:
        """Start empty; ``number``: whether ids are numbers in the collection; ``width`` of the vectors."""
        self._client, self._section, self._number = client, section, number
        self.fields = [
            name for name in (section.id_field, section.text_field, section.title_field, section.vector_field) if name
        ]
        self._next, self._put = 1, 0
        self._row_of: dict[str, int] = {}
        self._kept = {0: (Passage("", ""), np.zeros(width, dtype=np.float32))}

    def put(self, hits: Hits) -> Mapping[str, int]:
        """Return the rows of passages, which stay in memory from now on."""
        self._put += len(hits)
        rows = {}
        for name, fields in hits:
            row = self._row_of.pop(name, None)  # put back as the last one seen
            if row is None:
                row, self._next = self._next, self._next + 1
                title = str(fields.get(self._section.title_field) or "")
                passage = Passage(name, str(fields.get(self._section.text_field) or ""), title)
                self._kept[row] = passage, np.asarray(fields[self._section.vector_field], dtype=np.float32)
            self._row_of[name] = rows[name] = row
        return rows

    def make_room(self) -> None:
        """Forget the passages seen longest ago, before a search; those put since the last call are kept, since their
        rows may still be read."""
        if len(self._row_of) > MOST_KEPT:
            kept = max(MOST_KEPT // 2, self._put)
            for name in list(self._row_of)[: max(0, len(self._row_of) - kept)]:
                del self._kept[self._row_of.pop(name)]
        self._put = 0

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the rows of those ids that the collection has."""
        wanted = list(dict.fromkeys(ids))
        new = [name for name in wanted if name not in self._row_of]
        if self._number:
            new = [name for name in new if name.removeprefix("-").isdecimal()]
        for start in range(0, len(new), PER_CALL):
            part = new[start : start + PER_CALL]
            with explain_errors(self._client.where):
                stored = by_ids(self._client, self._section, self._number, part, self.fields, self._section.filter)
            self.put([(str(one[self._section.id_field]), one) for one in stored])
        return {name: self._row_of[name] for name in wanted if name in self._row_of}

    def sample(self, count: int) -> list[int]:
        """Return the rows of some passages."""
        with explain_errors(self._client.where):
            stored = self._client.query(
                self._section.collection, filter=self._section.filter, output_fields=self.fields, limit=count
            )
        return list(self.put([(str(one[self._section.id_field]), one) for one in stored]).values())

    def passage(self, row: int) -> Passage:
        """Return a passage that was put."""
        return self._kept[row][0]

    def vector(self, row: int) -> NDArray[np.float32]:
        """Return the vector of a passage that was put."""
        return self._kept[row][1]


class ShelvedPassages(Passages):
    """The passages of a collection, as far as they were found."""

    def __init__(self, shelf: Shelf, rows: int) -> None:
        """Store the passages found, and the number of all passages."""
        self._shelf, self._rows = shelf, rows

    def sample(self, count: int) -> list[int]:
        """Return the rows of some passages."""
        return self._shelf.sample(count)

    def __len__(self) -> int:
        """Return how many passages the collection has."""
        return self._rows

    def take(self, rows: Sequence[int]) -> list[Passage]:
        """Return the passages of ``rows``, in that order."""
        return [self._shelf.passage(int(row)) for row in rows]

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the rows of those ids that are in the collection."""
        return self._shelf.rows_of(ids)


class ShelvedVectors(Vectors):
    """The vectors of these passages, of length 1 whatever the collection has."""

    def __init__(self, shelf: Shelf, manifest: dict[str, Any]) -> None:
        """Store the passages found, and what is known about the collection."""
        super().__init__(manifest, [])
        self._shelf = shelf

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return vectors of ``rows`` (any shape), shape (*rows.shape, D)."""
        wanted = np.asarray(rows, dtype=np.int64)
        flat = np.array([self._shelf.vector(row) for row in wanted.ravel().tolist()], dtype=np.float32)
        flat /= np.maximum(np.linalg.norm(flat.reshape(-1, self.width), axis=-1, keepdims=True), 1e-12)
        return flat.reshape(*wanted.shape, self.width)
