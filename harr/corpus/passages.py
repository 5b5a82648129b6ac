"""Passages and questions on disk: memory-mapped Arrow shards, and JSON Lines."""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from harr.errors import DamagedFile
from harr.io.files import appears_whole, check_sums, fingerprint, read_jsonl, read_manifest, sha256, write_json
from harr.types import Hop, Passage, Question

SHARD_ROWS = 100_000
BATCH_ROWS = 10_000
REBUILD = "dvc repro -f -s download"
SCHEMA = pa.schema([("id", pa.string()), ("title", pa.string()), ("text", pa.string()), ("searchable", pa.bool_())])
SOURCED = SCHEMA.append(pa.field("source", pa.string()))
"""Schema of a corpus whose passages name their sources."""


def write_passages(
    passages: Iterable[Passage], folder: Path, *, searchable: Callable[[Passage], bool] | None = None
) -> dict[str, Any]:
    """Stream passages into Arrow shards of 100,000 rows and return the manifest.

    Equal passages give equal bytes. ``searchable`` says which of them go into the index (None: all). Sources are stored
    if the first passage has one.
    """
    shards: list[dict[str, Any]] = []
    stream = iter(passages)
    first = list(islice(stream, 1))
    schema = SOURCED if first and first[0].source else SCHEMA
    stream = chain(first, stream)
    while rows := _write_shard(stream, folder / f"passages-{len(shards):05d}.arrow", searchable, schema):
        path = folder / f"passages-{len(shards):05d}.arrow"
        shards.append({"file": path.name, "rows": rows, "sha256": sha256(path)})
    manifest = {
        "identity": fingerprint([shard["sha256"] for shard in shards]),
        "rows": sum(shard["rows"] for shard in shards),
        "shards": shards,
    }
    write_json(folder / "manifest.json", manifest)
    return manifest


def _write_shard(
    stream: Iterator[Passage], path: Path, searchable: Callable[[Passage], bool] | None, schema: pa.Schema
) -> int:
    """Write at most one shard and return its number of rows; 0, without a file, at the end of the stream."""
    first = list(islice(stream, BATCH_ROWS))
    if not first:
        return 0
    rows = 0
    with (
        appears_whole(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as writer,
    ):
        batch = first
        while batch:
            columns: list[Any] = [[p.id for p in batch], [p.title for p in batch], [p.text for p in batch]]
            columns.append([searchable is None or searchable(p) for p in batch])
            columns += [[p.source for p in batch]] * (schema is SOURCED)
            writer.write_batch(pa.record_batch(columns, schema=schema))
            rows += len(batch)
            batch = list(islice(stream, min(BATCH_ROWS, SHARD_ROWS - rows)))
    return rows


class Passages:
    """A corpus's passages by row number, memory-mapped."""

    def __init__(self, table: pa.Table, identity: str) -> None:
        """Wrap a mapped table; use :meth:`open`."""
        self.identity = identity
        self._table = table
        names = [name for name in ("id", "text", "title", "source") if name in table.column_names]
        self._batches = [[batch.column(name) for name in names] for batch in table.to_batches()]
        self._ends = [*accumulate(len(columns[0]) for columns in self._batches)]
        self._row_of: dict[str, int | None] = {}

    @classmethod
    def open(cls, folder: Path) -> "Passages":
        """Map the shards of ``folder``, whose hashes are checked once.

        Raises:
            DamagedFile: manifest or shard is missing or changed; names it and how to rebuild it.
        """
        manifest = read_manifest(folder, REBUILD, keys={"shards": list}, once=True)
        tables = [_map_shard(folder / shard["file"]) for shard in manifest["shards"]]
        return cls(pa.concat_tables(tables), manifest["identity"])

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self._table)

    def take(self, rows: Sequence[int]) -> list[Passage]:
        """Return the passages of ``rows``, in that order."""
        return [self._passage(int(row)) for row in rows]

    def _passage(self, row: int) -> Passage:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        batch = bisect_right(self._ends, row)
        place = row - self._ends[batch]  # from the end
        return Passage(*(column[place].as_py() for column in self._batches[batch]))

    def contents(self, start: int, stop: int) -> list[str]:
        """Return title and text, as embedded, of the passages from ``start`` up to ``stop``."""
        rows = self._table.slice(start, stop - start)
        columns = (rows.column(name).to_pylist() for name in ("id", "text", "title"))
        return [Passage(*values).content for values in zip(*columns, strict=True)]

    def marks(self) -> NDArray[np.int64]:
        """Return hashes of all ids, ascending, and of their passages, (2, N): a fingerprint of the corpus."""
        marks = np.empty((2, len(self)), dtype=np.int64)
        for start in range(0, len(self), BATCH_ROWS):
            part = self.take(range(start, min(start + BATCH_ROWS, len(self))))
            marks[0, start : start + len(part)] = [short_hash(p.id.encode()) for p in part]
            contents = ("\0".join((p.id, p.title, p.text)) for p in part)
            marks[1, start : start + len(part)] = [short_hash(content.encode()) for content in contents]
        return marks[:, np.argsort(marks[0], kind="stable")]

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the rows of those ids that are in the corpus; unseen ids cost one scan of the id column."""
        wanted = list(dict.fromkeys(ids))
        if len(self._row_of) > 2 * len(self._table):  # limits the memory of a server that receives unknown ids
            self._row_of.clear()
        unseen = [pid for pid in wanted if pid not in self._row_of]
        if unseen:
            column = self._table.column("id")
            rows = pc.indices_nonzero(pc.is_in(column, value_set=pa.array(unseen, pa.string())))
            self._row_of |= dict.fromkeys(unseen)
            self._row_of |= dict(zip(column.take(rows).to_pylist(), rows.to_pylist(), strict=True))
        return {pid: row for pid in wanted if (row := self._row_of[pid]) is not None}

    @cached_property
    def searchable(self) -> NDArray[np.bool_]:
        """Return for every row whether it goes into the index."""
        return np.asarray(self._table.column("searchable"), dtype=np.bool_)

    @property
    def titles(self) -> pa.ChunkedArray:
        """Return the titles of all passages, by row, as an Arrow column."""
        return self._table.column("title")

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the sources of the searchable passages, sorted; () if the corpus has none."""
        if "source" not in self._table.column_names:
            return ()
        column = self._table.column("source").filter(self._table.column("searchable"))
        return tuple(sorted(pc.unique(column).to_pylist()))

    def searchable_rows(self, source: str = "") -> NDArray[np.int64]:
        """Return the rows that go into the index, ascending: those of one ``source``, or all."""
        flags = self._table.column("searchable")
        if source:
            flags = pc.and_(flags, pc.equal(self._table.column("source"), source))
        return np.asarray(pc.indices_nonzero(flags), dtype=np.int64)


def short_hash(content: bytes) -> int:
    """Return a non-negative 63-bit hash, which fits into an int64."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> 1


def _map_shard(path: Path) -> pa.Table:
    """Return a shard's table, whose bytes stay on disk until read."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        return reader.read_all()


def write_questions(questions: Iterable[Question], path: Path) -> int:
    """Write questions as JSON Lines; return how many."""
    count = 0
    with appears_whole(path) as temporary, temporary.open("w", encoding="utf-8") as handle:
        for question in questions:
            row: dict[str, Any] = {
                "id": question.id,
                "question": question.text,
                "answers": question.answers,
                "supporting": question.gold_ids,
                "context_ids": question.candidate_ids,
                "type": question.kind,
            }
            row |= {name: value for name in ("level", "setting", "notes") if (value := getattr(question, name))}
            if question.history:
                row["history"] = [(hop.query, hop.answer) for hop in question.history]
            if question.grades:
                row["grades"] = dict(zip(question.gold_ids, question.grades, strict=True))
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def read_questions(path: Path) -> list[Question]:
    """Read what :func:`write_questions` wrote.

    Raises:
        DamagedFile: the file is missing or changed, or a line is not a question.
    """
    check_sums(path.parent, "dvc repro")
    try:
        rows = read_jsonl(path)
        return [
            Question(
                id=row["id"],
                text=row["question"],
                answers=tuple(row["answers"]),
                gold_ids=tuple(row["supporting"]),
                candidate_ids=tuple(row["context_ids"]),
                kind=row["type"],
                level=row.get("level", ""),
                setting=row.get("setting", ""),
                grades=tuple(row.get("grades", {}).values()),
                notes=row.get("notes", {}),
                history=tuple(Hop(*turn) for turn in row.get("history", ())),
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path} cannot be read ({error!r}); run `dvc repro`") from None
