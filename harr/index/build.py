"""Build a Milvus collection of passages (stage index)."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymilvus import DataType, Function, FunctionType
from tqdm import tqdm

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import IndexMismatch
from harr.index import kinds
from harr.index.collection import WRITE_SECONDS, Slice, content_of, count, open_build, properties
from harr.index.full_text import ANALYZER, BM25, MAX_TEXT_BYTES, PLAIN, prepare_text
from harr.index.passage_index import ROWS
from harr.io.files import fingerprint, note_published, publish, read_state, reopen_published, write_json
from harr.io.progress import bar, stoppable
from harr.params.index import IndexParams
from harr.services.milvus_client import REBUILD, Connection, check_full_text

FLUSH_ROWS = 50_000
"""Number of rows that Milvus Lite flushes at a time; otherwise a million take 7 GB of memory. A server decides itself.
With full text nothing is flushed early: Lite counts BM25's words per segment, so all rows must stay together."""
FORMAT = 4
"""Version of the collection's layout."""
AGAIN = "delete its folder and run the same command again"


def build_index(
    passages: Passages, vectors: Vectors, params: IndexParams, out: Path, work: Path, fill: "Fill | None" = None
) -> dict[str, float]:
    """Put the searchable passages into Milvus and publish ``out``: manifest.json, rows, and milvus.db for Lite.

    A corpus with sources gets one collection per source and one for the whole. Primary keys are rows. A killed
    build resumes after its last finished batch in ``work/<fingerprint>``; a complete collection on a server is reused.
    ``fill`` replaces :meth:`Builder.insert` (``index.function``).

    Returns:
        Figures for the metrics file.

    Raises:
        ServiceUnavailable: Milvus cannot be reached, or refuses the passages.
        ParamsError: full text is requested, but the server does not have it.
        IndexMismatch: rows are missing at the end.
    """
    parts = _parts(passages, vectors, params)
    whole, sources = parts[""], {source: part.describe() for source, part in parts.items() if source}
    manifest = {
        **whole.content,
        "width": vectors.width,
        **whole.describe(),
        **({"sources": sources} if sources else {}),
    }
    # Another function or other settings do not resume unfinished work.
    plan = {**manifest, "uri": params.uri, "function": params.function, "settings": params.settings}
    folder = work / fingerprint(plan)
    reopen_published(folder, out, folder / "out", manifest)
    _drop_half_written_indexes(folder)
    started = time.monotonic()
    with open_build(params, folder / "out") as client:
        if params.full_text:
            check_full_text(client)
        (folder / "out").mkdir(parents=True, exist_ok=True)
        builder = Builder(client, passages, vectors, params, folder, fill or Builder.insert)
        inserted = {source: builder.collection(part) for source, part in parts.items()}
    np.save(folder / "out" / ROWS, whole.rows, allow_pickle=False)
    write_json(folder / "out" / "manifest.json", manifest)
    kinds.note_search(folder / "out", params)
    note_published(folder)
    publish(folder / "out", out)
    shutil.rmtree(folder)
    seconds, total = time.monotonic() - started, sum(inserted.values())
    return {
        "rows": len(whole.rows),
        "indexed": len(whole.rows),
        **{f"indexed_{source}": len(part.rows) for source, part in parts.items() if source},
        "corpus_rows": len(passages),
        "full_text": float(params.full_text),
        "index_memory_mb": kinds.memory_bytes(params, len(whole.rows), vectors.width) / 1e6,
        "inserted": total,
        "seconds": seconds,
        "rows_per_second": total / seconds,
    }


def _parts(passages: Passages, vectors: Vectors, params: IndexParams) -> dict[str, Slice]:
    """Return the slices of the corpus by source; "" is the whole."""
    parts: dict[str, Slice] = {}
    for source in ("", *passages.sources):
        subset = passages.searchable_rows(source)
        content = {"identity": vectors.identity, "rows": len(subset), "full_text": params.full_text, "format": FORMAT}
        content |= {name: vectors.manifest[name] for name in ("encoder", "dtype") if name in vectors.manifest}
        content |= kinds.describe_kind(params)
        content |= {"source": source} if source else {}
        content |= {"stemmer": params.stemmer} if params.stemmer else {}
        parts[source] = Slice(source, _name(vectors, params, source), subset, content)
    return parts


def _name(vectors: Vectors, params: IndexParams, source: str) -> str:
    """Return the collection name of a corpus, or of one of its sources, for one encoder."""
    kind = "" if params.kind == "flat" else f"_{params.kind}"
    text = ("_stems" if params.stemmer else "") if params.full_text else "_dense"
    return f"harr_{vectors.identity}{text}{kind}{f'_in_{source}' if source else ''}"


@dataclass(frozen=True, slots=True)
class Builder:
    """Build collections; ``folder`` has the unfinished work."""

    client: Connection
    passages: Passages
    vectors: Vectors
    params: IndexParams
    folder: Path
    fill: "Fill"

    def collection(self, part: Slice) -> int:
        """Build one collection, resuming a killed build; return the number of passages inserted."""
        progress_path = self.folder / (f"progress-{part.source}.json" if part.source else "progress.json")
        first, rows, label = self._first_missing(part, progress_path), len(part.rows), f"index {part.source}".strip()
        if 0 < first < rows:
            tqdm.write(f"resuming {label} at passage {first}/{rows} ({100 * first / rows:.1f} %)")
        with bar(total=rows, initial=first, desc=label, unit="passage") as progress:
            if first < rows or progress_path.exists():
                self.fill(self, part, first, progress_path, progress.update)
            progress.set_postfix_str("the index is built")
            _finish(self.client, part)
            return rows - first

    def insert(self, part: Slice, first: int, progress_path: Path, on_rows: Callable[[int], object]) -> None:
        """Insert the passages from ``first`` on, writing the progress to ``progress_path``."""
        # A killed client's last batch may still arrive at a server: upsert makes it harmless.
        write, unflushed = self.client.upsert if first else self.client.insert, 0
        size, name = self.params.batch_size, part.collection
        for start in stoppable(range(first, len(part.rows), size)):
            batch = np.arange(start, min(start + size, len(part.rows)))
            write(name, self.records(part, batch), timeout=WRITE_SECONDS)
            write_json(progress_path, {"rows": start + len(batch)})
            on_rows(len(batch))
            unflushed += len(batch)
            if not self.params.uri and not self.params.full_text and unflushed >= FLUSH_ROWS:
                self.client.flush(name, timeout=WRITE_SECONDS)
                unflushed = 0

    def records(self, part: Slice, places: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return the Milvus records of the passages at these places of a slice."""
        rows = part.rows[places].tolist()
        pairs = zip(rows, self.vectors.take(part.rows[places]), strict=True)
        records: list[dict[str, Any]] = [{"key": row, "vector": vector} for row, vector in pairs]
        if self.params.full_text:
            for record, passage in zip(records, self.passages.take(rows), strict=True):
                record["text"] = prepare_text(passage.content, self.params.stemmer)
        return records

    def _first_missing(self, part: Slice, progress: Path) -> int:
        """Return how many rows the collection already has; recreate a collection with other content."""
        client, name, content = self.client, part.collection, part.content
        if client.has_collection(name):
            if content_of(client, name) == content:
                if progress.exists():
                    rows = int(read_state(progress, AGAIN, rows=int)["rows"])
                    if rows == len(part.rows) or not self._has_flushed_rows(name):
                        return rows
                elif count(client, name, len(part.rows)) == len(part.rows):
                    return len(part.rows)
            client.drop_collection(name)
        progress.unlink(missing_ok=True)
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.vectors.width)
        if self.params.full_text:
            analyzer = PLAIN if self.params.stemmer else ANALYZER
            schema.add_field(
                "text", DataType.VARCHAR, max_length=MAX_TEXT_BYTES, enable_analyzer=True, analyzer_params=analyzer
            )
            schema.add_field("terms", DataType.SPARSE_FLOAT_VECTOR)
            schema.add_function(
                Function("bm25", FunctionType.BM25, input_field_names=["text"], output_field_names=["terms"])
            )
        client.create_collection(name, schema=schema, properties=properties(content), consistency_level="Strong")
        return 0

    def _has_flushed_rows(self, name: str) -> bool:
        """Return whether a stopped build has rows on disk: Milvus Lite would count the other rows' words separately."""
        collection = self.folder / "out/milvus.db/collections" / name
        return self.params.full_text and not self.params.uri and any(collection.rglob("*.parquet"))


Fill = Callable[[Builder, Slice, int, Path, Callable[[int], object]], None]
"""A function that fills a collection from the given place on, writes its progress (``rows``) to a file, from which a
killed build resumes, and reports the number of passages inserted."""


def _finish(client: Connection, part: Slice) -> None:
    """Flush, index, load and count, in the order that is safe in Milvus Lite."""
    name, content, rows = part.collection, part.content, len(part.rows)
    client.flush(name, timeout=WRITE_SECONDS)
    if not client.list_indexes(name):
        indexes = client.prepare_index_params()
        indexes.add_index("vector", metric_type="IP", **kinds.index_of(content))
        if content["full_text"]:
            # pymilvus flattens params, but Lite reads only a nested `params`; servers accept both.
            nested = {"params": BM25}
            indexes.add_index("terms", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params=nested)
        client.create_index(name, indexes, timeout=kinds.build_seconds(rows))
    indexed = count(client, name, rows)
    if indexed != rows:
        client.drop_collection(name)
        raise IndexMismatch(f"{name} held {indexed} of {rows} passages and was dropped; run `{REBUILD}`")


def _drop_half_written_indexes(folder: Path) -> None:
    """Remove a killed build's partial index files and collections; Lite recreates missing index files."""
    for path in [*folder.rglob("*.idx"), *folder.rglob("*.tmp")]:
        path.unlink()
    for path in folder.glob("out/milvus.db/collections/*"):  # Lite recognizes a collection by its schema.json
        if not (path / "schema.json").exists():
            shutil.rmtree(path)
