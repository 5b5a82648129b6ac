"""Stage index: passages become a collection of Milvus, or the one that is there is brought to them (change.py)."""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
from harr.index.change import Before, alike, change, check_alias, copy, in_place, point
from harr.index.collection import WRITE_SECONDS, Built, Keys, Slice, content_of, count, opened, properties, where_of
from harr.index.full_text import ANALYZER, BM25, MAX_TEXT_BYTES, PLAIN, texts_of
from harr.index.passage_index import KEYS
from harr.io.files import fingerprint, note_published, publish, read_state, reopen_published, write_json
from harr.io.progress import bar, stoppable
from harr.io.resume import open_work
from harr.params.index import IndexParams
from harr.services.milvus_client import REBUILD, Connection, check_full_text, check_index_type

FLUSH_ROWS = 50_000
"""Number of rows that Milvus Lite puts on disk at a time; left alone it takes 7 GB for a million. A server decides
itself, and with full text all rows must stay together, since Lite counts the words of BM25 in every segment on its
own."""
FORMAT = 2
"""Number of the way in which a collection holds passages; those of format 1 had rows as keys."""
AGAIN = "delete its folder and run the same command again"


def build_index(
    passages: Passages, vectors: Vectors, params: IndexParams, out: Path, work: Path, fill: "Fill | None" = None
) -> dict[str, float]:
    """Put the searchable passages into Milvus and publish ``out``: manifest.json, keys, and milvus.db for Lite.

    A corpus whose passages name their sources gets a collection a source beside that of the whole. Primary keys follow
    from what a passage says. Where ``out`` holds the index of a corpus like this one, whose collections may be changed,
    they are brought to this corpus. A killed build is taken up after its last finished batch from
    ``work/<fingerprint>``, a killed change is repeated; a collection that is complete on a server is kept as it is.
    ``fill`` puts a part into its new collection otherwise than :meth:`Builder.insert` does (``index.function``).

    Returns:
        Figures for the metrics file.

    Raises:
        ServiceUnavailable: Milvus cannot be reached, or refuses the passages.
        ParamsError: full text is asked of a server that has none, or ``index.alias`` names another collection.
        IndexMismatch: rows are missing at the end.
    """
    parts = _parts(passages, vectors, params)
    before = Before.find(out, params, parts)
    if before:
        parts = {source: replace(part, collection=before.collection(source)) for source, part in parts.items()}
    whole, manifest = parts[""], _manifest(parts, before, vectors.width)
    # Another way to fill it, or other settings of that, does not go on with what is under way.
    plan = {**manifest, "uri": params.uri, "function": params.function, "settings": params.settings}
    folder = work / fingerprint(plan)
    reopen_published(folder, out, folder / "out", manifest)
    open_work(work, plan)
    if before and not params.uri and not (folder / "out").exists():
        copy(out, folder / "out")
    _drop_half_written_indexes(folder)
    started = time.monotonic()
    with opened(params, folder / "out") as client:
        if params.full_text:
            check_full_text(client)
        for source in parts if params.alias else ():
            check_alias(client, params.alias + _of(source))
        if params.kind != "flat" and not client.has_collection(whole.collection):
            check_index_type(client, params.kind, kinds.tried_as(params))
        needed = kinds.tell_memory(params, len(whole.rows), vectors.width, where_of(params, out))
        (folder / "out").mkdir(parents=True, exist_ok=True)
        builder = Builder(client, passages, vectors, params, folder, fill or Builder.insert)
        built = {source: builder.collection(part, before) for source, part in parts.items()}
        for source, part in parts.items() if params.alias else ():
            point(client, params.alias + _of(source), part.collection)
    _publish(parts, manifest, params, folder, out)
    seconds, inserted = time.monotonic() - started, sum(one.inserted for one in built.values())
    return {
        "rows": len(whole.rows),
        "indexed": built[""].rows,
        **{f"indexed_{source}": built[source].rows for source in parts if source},
        "corpus_rows": len(passages),
        "full_text": float(params.full_text),
        "index_memory_mb": needed / 1e6,
        "inserted": inserted,
        "deleted": sum(one.deleted for one in built.values()),
        "seconds": seconds,
        "rows_per_second": inserted / seconds,
    }


def _manifest(parts: Mapping[str, Slice], before: Before | None, width: int) -> dict[str, Any]:
    """Return what the stage's output says of itself."""
    whole, told = parts[""], {source: part.describe() for source, part in parts.items() if source}
    content = {**whole.content, "width": width, "deleted": before.holes(whole) if before else 0}
    return {**content, **whole.describe(), **({"sources": told} if told else {})}


def _publish(
    parts: Mapping[str, Slice], manifest: Mapping[str, Any], params: IndexParams, folder: Path, out: Path
) -> None:
    """Write down keys and manifest beside the collections, and give the index its place."""
    for part in parts.values():
        Keys.of(part.keys, part.rows).save(folder / "out" / part.file)
    write_json(folder / "out" / "manifest.json", manifest)
    kinds.note_search(folder / "out", params)
    note_published(folder)
    publish(folder / "out", out)
    shutil.rmtree(folder)


def _parts(passages: Passages, vectors: Vectors, params: IndexParams) -> dict[str, Slice]:
    """Return what the collections hold, by source; "" is the whole."""
    rows = passages.searchable_rows()
    keys, parts = passages.keys(rows), dict[str, Slice]()
    for number, source in enumerate(("", *passages.sources)):
        own = passages.searchable_rows(source) if source else rows
        content = {"identity": vectors.identity, "rows": len(own), "full_text": params.full_text, "format": FORMAT}
        content |= {name: vectors.manifest[name] for name in ("encoder", "dtype") if name in vectors.manifest}
        content |= kinds.built_as(params) | ({"alias": params.alias} if params.alias else {})
        content |= {"source": source} if source else {}
        content |= {"stemmer": params.stemmer} if params.stemmer else {}
        file = f"keys-{number}.npy" if source else KEYS
        name = _name(vectors, params, source)
        parts[source] = Slice(source, name, own, keys[np.searchsorted(rows, own)], content, file)
    return parts


def _name(vectors: Vectors, params: IndexParams, source: str) -> str:
    """Return the collection of a corpus as one encoder sees it, or of one of its sources, where it is built."""
    kind = "" if params.kind == "flat" else f"_{params.kind}"
    text = ("_stems" if params.stemmer else "") if params.full_text else "_dense"
    return f"{params.alias or 'harr'}_{vectors.identity}{text}{kind}{_of(source)}"


def _of(source: str) -> str:
    return f"_in_{source}" if source else ""


@dataclass(frozen=True, slots=True)
class Builder:
    """What collections are built with: ``folder`` is that of the unfinished work."""

    client: Connection
    passages: Passages
    vectors: Vectors
    params: IndexParams
    folder: Path
    fill: "Fill"

    def collection(self, part: Slice, before: Before | None) -> Built:
        """Build one collection from where a killed build left it, or bring the one that is there to its part."""
        client, name = self.client, part.collection
        if in_place(self.params) and client.has_collection(name):
            there = content_of(client, name)
            if there != part.content and alike(there, part):
                return change(client, part, before, lambda at: self.records(part, at), self.params.batch_size)
        known = self.folder / (f"progress-{part.source}.json" if part.source else "progress.json")
        first, rows, what = self._first_missing(part, known), len(part.rows), f"index {part.source}".strip()
        if 0 < first < rows:
            tqdm.write(f"resuming {what} at passage {first}/{rows} ({100 * first / rows:.1f} %)")
        with bar(total=rows, initial=first, desc=what, unit="passage") as progress:
            if first < rows or known.exists():
                self.fill(self, part, first, known, progress.update)
            progress.set_postfix_str("the index is built")
            return Built(_finish(client, part), rows - first, 0)

    def insert(self, part: Slice, first: int, known: Path, on_rows: Callable[[int], object]) -> None:
        """Insert the passages from the ``first`` on, and note in ``known`` how far it came."""
        # A killed client's last batch may still arrive at a server: upsert makes it harmless.
        write, unflushed = self.client.upsert if first else self.client.insert, 0
        size, name = self.params.batch_size, part.collection
        for start in stoppable(range(first, len(part.rows), size)):
            batch = np.arange(start, min(start + size, len(part.rows)))
            write(name, self.records(part, batch), timeout=WRITE_SECONDS)
            write_json(known, {"rows": start + len(batch)})
            on_rows(len(batch))
            unflushed += len(batch)
            if not self.params.uri and not self.params.full_text and unflushed >= FLUSH_ROWS:
                self.client.flush(name, timeout=WRITE_SECONDS)
                unflushed = 0

    def records(self, part: Slice, places: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return what Milvus is sent of the passages at these places of a part."""
        rows, keys = part.rows[places], part.keys[places].tolist()
        vectors = self.vectors.take(rows)
        records: list[dict[str, Any]] = [
            {"key": key, "vector": vector} for key, vector in zip(keys, vectors, strict=True)
        ]
        if self.params.full_text or self.params.alias:
            for record, passage in zip(records, self.passages.take(rows.tolist()), strict=True):
                record |= texts_of(passage, self.params)
        return records

    def _first_missing(self, part: Slice, progress: Path) -> int:
        """Return how many of the rows are in the collection already; one of other content is made anew."""
        client, name, content = self.client, part.collection, part.content
        if client.has_collection(name):
            if content_of(client, name) == content:
                if progress.exists():
                    rows = int(read_state(progress, AGAIN, rows=int)["rows"])
                    if rows == len(part.rows) or not self._cut(name):
                        return rows
                elif count(client, name, len(part.rows)) == len(part.rows):
                    return len(part.rows)
            client.drop_collection(name)
        progress.unlink(missing_ok=True)
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.vectors.width)
        if self.params.alias:
            schema.add_field("id", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
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

    def _cut(self, name: str) -> bool:
        """Whether a stopped build put its rows on disk: Milvus Lite would count the words of the rest apart."""
        held = self.folder / "out/milvus.db/collections" / name
        return self.params.full_text and not self.params.uri and any(held.rglob("*.parquet"))


Fill = Callable[[Builder, Slice, int, Path, Callable[[int], object]], None]
"""A function that puts a part into its collection from the given place on, notes in a file how far it came (``rows``),
so that a killed build can go on, and tells the number of passages as they go in."""


def _finish(client: Connection, part: Slice) -> int:
    """Flush, index, load and count, in the order that is safe in Milvus Lite; returns the count."""
    name, content, rows = part.collection, part.content, len(part.rows)
    client.flush(name, timeout=WRITE_SECONDS)
    if not client.list_indexes(name):
        indexes = client.prepare_index_params()
        indexes.add_index("vector", metric_type="IP", **kinds.index_of(content))
        if content["full_text"]:
            # pymilvus flattens params, and Lite reads none but a nested `params`; servers take both.
            nested = {"params": BM25}
            indexes.add_index("terms", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params=nested)
        client.create_index(name, indexes, timeout=kinds.build_seconds(rows))
    found = count(client, name, rows)
    if found != rows:
        client.drop_collection(name)
        raise IndexMismatch(f"{name} held {found} of {rows} passages and was dropped; run `{REBUILD}`")
    return found


def _drop_half_written_indexes(folder: Path) -> None:
    """Remove what a kill leaves: stumps of index files, which Lite never loads (it makes missing ones), and of
    collections."""
    for path in [*folder.rglob("*.idx"), *folder.rglob("*.tmp")]:
        path.unlink()
    for path in folder.glob("out/milvus.db/collections/*"):  # Lite knows a collection by its schema.json
        if not (path / "schema.json").exists():
            shutil.rmtree(path)
