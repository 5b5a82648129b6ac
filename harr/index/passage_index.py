"""The passage index in Milvus: nearest passages by vector and by BM25.

There is one collection per index identity, alike in Milvus Lite (``milvus.db`` in the stage's output,
one process at a time) and on a Milvus server. Its property ``harr`` says what it was built from, so
that the live collection can be compared with the manifest on every open (Lite keeps no description).
"""

import json
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymilvus import DataType, Function, FunctionType
from tqdm import tqdm

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import DamagedFile, IndexMismatch, bare
from harr.index import kinds
from harr.index.bulk_import import MAX_TEXT_BYTES, import_jobs, import_passages, searched_text
from harr.index.full_text import ANALYZER, BM25
from harr.io.files import fingerprint, note_published, publish, read_manifest, read_state, reopen_published, write_json
from harr.io.progress import bar, stoppable
from harr.io.resume import unfinished
from harr.params.index import IndexParams
from harr.services.milvus_client import REBUILD, Connection, check_full_text, check_index_type, connect, explained

SEARCH_SECONDS = 60.0
BUILD_SECONDS = 1800.0
QUERIES_PER_CALL = 1024
FLUSH_ROWS = 50_000
"""Number of rows that Milvus Lite puts on disk at a time; left alone it takes 7 GB for a million. A server decides
itself, and with full text all rows must stay together, since Lite counts the words of BM25 in every segment on its
own."""
TIES = 8
"""Number of hits that are fetched beyond those asked for, so that equal scores at the cut are settled by row."""
DEPTH = 20
"""Minimum number of hits of a text that are fetched, so that a search for a few more of them need not ask again."""
REMEMBERED = 10_000
"""Number of texts above which what was found is forgotten."""
AGAIN = "delete its folder and run the same command again"


def build_index(passages: Passages, vectors: Vectors, params: IndexParams, out: Path, work: Path) -> dict[str, float]:
    """Put the searchable passages into Milvus and publish ``out``: manifest.json, and milvus.db for Lite.

    A corpus whose passages name their sources gets a collection a source beside that of the whole. Row numbers are the
    primary key. A killed build is taken up after its last finished batch from ``work/<fingerprint>``; a collection
    that is complete on a server is kept as it is.

    Returns:
        Figures for the metrics file.

    Raises:
        ServiceUnavailable: Milvus cannot be reached, or refuses the passages.
        ParamsError: full text is asked of a server that has none.
        IndexMismatch: rows are missing at the end; the collection has been dropped.
    """
    rows = {source: passages.searchable_rows(source) for source in ("", *passages.sources)}
    parts = {s: {"collection": _name(vectors, params, s), "rows": len(part)} for s, part in rows.items()}
    content = {"identity": vectors.identity, "rows": len(rows[""]), "full_text": params.full_text}
    content |= kinds.built_as(params)
    manifest: dict[str, Any] = {**parts.pop(""), **content, "width": vectors.width}
    manifest |= {"sources": parts} if parts else {}
    # Another place for the files is another import: what waits in the old one is not looked for.
    plan = {**content, "uri": params.uri} | ({"bulk": params.bulk} if params.bulk else {})
    plan |= {"sources": parts} if parts else {}
    folder = work / fingerprint(plan)
    reopen_published(folder, out, folder / "out", manifest)
    unfinished(work, plan)
    _drop_half_written_indexes(folder)
    started = time.monotonic()
    with _opened(params, folder / "out") as client:
        if params.full_text:
            check_full_text(client)
        if params.kind != "flat" and not client.has_collection(manifest["collection"]):
            check_index_type(client, params.kind, kinds.tried_as(params))
        needed = kinds.tell_memory(params, len(rows[""]), vectors.width, _where(params, out))
        (folder / "out").mkdir(parents=True, exist_ok=True)
        built = {s: _build_collection(client, passages, vectors, part, params, folder, s) for s, part in rows.items()}
    write_json(folder / "out" / "manifest.json", manifest)
    kinds.note_search(folder / "out", params)
    note_published(folder)
    publish(folder / "out", out)
    shutil.rmtree(folder)
    seconds, inserted = time.monotonic() - started, sum(new for _, new in built.values())
    return {
        "rows": len(rows[""]),
        "indexed": built[""][0],
        **{f"indexed_{source}": built[source][0] for source in parts},
        "corpus_rows": len(passages),
        "full_text": float(params.full_text),
        "index_memory_mb": needed / 1e6,
        "inserted": inserted,
        "seconds": seconds,
        "rows_per_second": inserted / seconds,
    }


def _name(vectors: Vectors, params: IndexParams, source: str) -> str:
    """Return the collection of a corpus as one encoder sees it, or of one of its sources."""
    kind = "" if params.kind == "flat" else f"_{params.kind}"
    text = "" if params.full_text else "_dense"
    return f"harr_{vectors.identity}{text}{kind}" + (f"_in_{source}" if source else "")


def _build_collection(
    client: Connection,
    passages: Passages,
    vectors: Vectors,
    rows: NDArray[np.int64],
    params: IndexParams,
    folder: Path,
    source: str,
) -> tuple[int, int]:
    """Build one collection, from where a killed build left it; returns how many rows it has, and how many are new."""
    content = {"identity": vectors.identity, "rows": len(rows), "full_text": params.full_text}
    content |= kinds.built_as(params)
    content |= {"source": source} if source else {}
    name, what = _name(vectors, params, source), f"index {source}".strip()
    known = folder / (f"progress-{source}.json" if source else "progress.json")
    first = _first_missing(client, name, content, vectors.width, known)
    if 0 < first < len(rows):
        tqdm.write(f"resuming {what} at passage {first}/{len(rows)} ({100 * first / len(rows):.1f} %)")
    with bar(total=len(rows), initial=first, desc=what, unit="passage") as progress:
        if (params.bulk and first < len(rows)) or (known.exists() and "jobs" in read_state(known, AGAIN)):
            start_job, state = import_jobs(client, name)
            import_passages(passages, vectors, rows, params, known, start_job, state, progress.update)
        else:
            # A killed client's last batch may still arrive at a server: upsert makes it harmless.
            write, unflushed = client.upsert if first else client.insert, 0
            for start in stoppable(range(first, len(rows), params.batch_size)):
                batch = rows[start : start + params.batch_size]
                write(name, _records(passages, vectors, batch, params), timeout=BUILD_SECONDS)
                write_json(known, {"rows": start + len(batch)})
                progress.update(len(batch))
                unflushed += len(batch)
                if not params.uri and not params.full_text and unflushed >= FLUSH_ROWS:
                    client.flush(name, timeout=BUILD_SECONDS)
                    unflushed = 0
        progress.set_postfix_str("the index is built")
        return _finish(client, name, content), len(rows) - first


class PassageIndex:
    """An open index; close it (or use ``with``), since Milvus Lite is locked by the one who has it open."""

    def __init__(self, client: Connection, where: str, manifest: dict[str, Any]) -> None:
        """Take a checked collection; use :meth:`open`."""
        self._client = client
        self._where = where
        self._manifest = manifest
        self._collection: str = manifest["collection"]
        self.rows: int = manifest["rows"]
        self.width: int = manifest["width"]
        self.full_text: bool = manifest["full_text"]
        self._how: dict[str, Any] = manifest["search"]
        self._fields: dict[str, str] = {}
        self._wanted: dict[str, Any] = {"output_fields": ["row"]}
        self._found: dict[str, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}

    @classmethod
    def open(cls, out: Path, params: IndexParams, *, identity: str) -> "PassageIndex":
        """Open what :func:`build_index` published in ``out``; ``identity`` is that of the vectors.

        Raises:
            IndexMismatch: manifest or live collection is of another encoder or corpus, or lacks rows.
            ServiceUnavailable: no answer before the deadline, or Milvus Lite is open elsewhere.
            DamagedFile: manifest or milvus.db is missing or unreadable.
        """
        manifest = read_manifest(out, REBUILD, keys={"collection": str, "rows": int, "width": int, "full_text": bool})
        if manifest["identity"] != identity:
            raise IndexMismatch(
                f"{out} was built as {manifest['identity']}, but encoder, dtype and corpus make {identity}; "
                f"run `{REBUILD}`"
            )
        if not params.uri and not (out / "milvus.db").is_dir():
            raise DamagedFile(f"{out / 'milvus.db'} is missing; run `{REBUILD}`")
        where = _where(params, out)
        manifest |= {"search": kinds.read_search(out, REBUILD)}
        client = connect(params, where)
        try:
            with explained(where):
                for part in (manifest, *(manifest | part for part in manifest.get("sources", {}).values())):
                    _check(client, part, where)
        except BaseException:
            client.close()
            raise
        return cls(client, where, manifest)

    def of_source(self, source: str) -> "PassageIndex":
        """Return the collection of one source, over the same connection, which this index closes.

        Raises:
            IndexMismatch: the corpus has no such source.
        """
        parts = self._manifest.get("sources", {})
        if source not in parts:
            known = f"has the sources {', '.join(parts)}" if parts else "names no sources"
            raise IndexMismatch(
                f"sources.{source}: {self._where} has no collection of {source}, since its corpus {known}; correct "
                "sources in params.yaml, or set collection: corpus, or download a corpus that has it"
            )
        return PassageIndex(self._client, self._where, self._manifest | parts[source])

    def search(self, vectors_QD: NDArray[np.float32], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return rows and inner products of the ``n`` nearest passages, shape (Q, n) each, in one call.

        Exact where ``index.kind`` is flat. Best first; scores equal to 1e-6 are ordered by row. Where there are
        fewer than ``n`` passages, rows are padded with -1 and scores with minus infinity.
        """
        vectors_QD = np.asarray(vectors_QD, dtype=np.float32)
        if vectors_QD.shape[1] != self.width:
            raise IndexMismatch(
                f"query vectors have width {vectors_QD.shape[1]}, but {self._where} holds width {self.width}; "
                f"set encoder in params.yaml to the one of the index, or run `{REBUILD}`"
            )
        return self._search("vector", list(vectors_QD), n)

    def search_text(self, texts: Sequence[str], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return rows and BM25 scores (positive) of the ``n`` best passages per text; shapes as :meth:`search`.

        A passage that shares no word with a text, stop words apart, is not a hit; padding as there. What was found is
        kept, since a pipeline that picks one passage after the other asks the same again.
        """
        if not self.full_text:
            raise IndexMismatch(f"{self._where} has no BM25 part; set index.full_text: true and run `dvc repro`")
        if len(self._found) > REMEMBERED:
            self._found.clear()
        asked = [text for text in dict.fromkeys(texts) if re.search(r"\w", text)]
        if new := [text for text in asked if len(self._found.get(text, ((), ()))[0]) < n]:
            self._found.update(zip(new, zip(*self._search("terms", new, max(n, DEPTH)), strict=True), strict=True))
        rows_QN, scores_QN = _empty(len(texts), n)
        for q, text in enumerate(texts):
            if text in self._found:
                rows_QN[q], scores_QN[q] = (found[:n] for found in self._found[text])
        return rows_QN, scores_QN

    def _search(self, field: str, queries: list[Any], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        rows_QN, scores_QN = _empty(len(queries), n)
        limit = max(1, min(n + TIES, self.rows))
        how = kinds.search_params(self._how, self.rows, limit) if field == "vector" else {}
        for start in range(0, len(queries), QUERIES_PER_CALL):
            with explained(self._where):
                found = self._client.search(
                    self._collection,
                    data=queries[start : start + QUERIES_PER_CALL],
                    anns_field=self._fields.get(field, field),
                    limit=limit,
                    search_params={"params": how},
                    **self._wanted,
                    consistency_level="Strong",
                    timeout=SEARCH_SECONDS,
                )
            for q, hits in enumerate(found, start):
                rows, scores = self._rows(hits)
                # Lite gives BM25 scores with the sign turned; a BM25 score is never negative.
                scores = np.abs(scores) if field == "terms" else scores
                best = np.lexsort((rows, -scores.round(6)))[:n]
                rows_QN[q, : len(best)], scores_QN[q, : len(best)] = (rows[best], scores[best])
        return rows_QN, scores_QN

    def _rows(self, hits: Any) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        return np.asarray(hits.ids, dtype=np.int64), np.asarray(hits.distances, dtype=np.float32)

    def close(self) -> None:
        """Disconnect, and free the lock of Milvus Lite."""
        self._client.close()

    def __enter__(self) -> "PassageIndex":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _empty(queries: int, n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    return np.full((queries, n), -1, dtype=np.int64), np.full((queries, n), -np.inf, dtype=np.float32)


def _records(
    passages: Passages, vectors: Vectors, rows: NDArray[np.int64], params: IndexParams
) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [
        {"row": int(row), "vector": vector} for row, vector in zip(rows, vectors.take(rows), strict=True)
    ]
    if params.full_text:
        for record, passage in zip(records, passages.take(rows.tolist()), strict=True):
            record["text"] = searched_text(passage.content)
    return records


def _first_missing(client: Connection, name: str, content: dict[str, Any], width: int, progress: Path) -> int:
    """Return how many of the rows are in the collection already; one of other content is made anew."""
    if client.has_collection(name):
        if _content(client, name) == content:
            if progress.exists():
                return int(read_state(progress, AGAIN, rows=int)["rows"])
            if _count(client, name, content["rows"]) == content["rows"]:
                return int(content["rows"])
        client.drop_collection(name)
    progress.unlink(missing_ok=True)
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=width)
    if content["full_text"]:
        schema.add_field(
            "text", DataType.VARCHAR, max_length=MAX_TEXT_BYTES, enable_analyzer=True, analyzer_params=ANALYZER
        )
        schema.add_field("terms", DataType.SPARSE_FLOAT_VECTOR)
        schema.add_function(
            Function("bm25", FunctionType.BM25, input_field_names=["text"], output_field_names=["terms"])
        )
    properties = {"harr": json.dumps(content)}
    client.create_collection(name, schema=schema, properties=properties, consistency_level="Strong")
    return 0


def _finish(client: Connection, name: str, content: dict[str, Any]) -> int:
    """Flush, index, load and count, in the order that is safe in Milvus Lite; returns the count."""
    client.flush(name, timeout=BUILD_SECONDS)
    if not client.list_indexes(name):
        indexes = client.prepare_index_params()
        indexes.add_index("vector", metric_type="IP", **kinds.index_of(content))
        if content["full_text"]:
            # pymilvus flattens params, and Lite reads none but a nested `params`; servers take both.
            nested = {"params": BM25}
            indexes.add_index("terms", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params=nested)
        client.create_index(name, indexes, timeout=kinds.build_seconds(content["rows"]))
    count = _count(client, name, content["rows"])
    if count != content["rows"]:
        client.drop_collection(name)
        raise IndexMismatch(f"{name} held {count} of {content['rows']} passages and was dropped; run `{REBUILD}`")
    return count


def _content(client: Connection, name: str) -> dict[str, Any]:
    """Return what the collection was built from; empty where harr did not make it."""
    content: dict[str, Any] = json.loads(client.describe_collection(name)["properties"].get("harr", "{}"))
    return content


def _count(client: Connection, name: str, rows: int) -> int:
    if not client.list_indexes(name):
        return 0
    client.load_collection(name, timeout=kinds.build_seconds(rows))
    return int(client.query(name, output_fields=["count(*)"], consistency_level="Strong")[0]["count(*)"])


def _check(client: Connection, manifest: dict[str, Any], where: str) -> None:
    """Compare the live collection with the manifest of the stage's output."""
    name = manifest["collection"]
    if not client.has_collection(name):
        raise IndexMismatch(f"{where} has no collection {name}, which the manifest names; run `{REBUILD}`")
    built_as = _content(client, name).get("identity")
    if built_as != manifest["identity"]:
        raise IndexMismatch(
            f"collection {name} at {where} was built as {built_as}, but its manifest says {manifest['identity']}; "
            f"run `{REBUILD}`"
        )
    count = _count(client, name, manifest["rows"])
    if count != manifest["rows"]:
        raise IndexMismatch(
            f"collection {name} at {where} holds {count} passages, its manifest says {manifest['rows']}; "
            f"run `{REBUILD}`"
        )


@contextmanager
def _opened(params: IndexParams, folder: Path) -> Iterator[Connection]:
    """Return a connection for a build; a folder that Milvus Lite needs is made."""
    where = _where(params, folder)
    if not params.uri:
        folder.mkdir(parents=True, exist_ok=True)
    connection = connect(params, where)
    try:
        with explained(where):
            yield connection
    finally:
        connection.close()


def _where(params: IndexParams, folder: Path) -> str:
    """Return what messages call it; the folder is also opened by this name."""
    return bare(params.uri) or str((folder / "milvus.db").resolve())


def _drop_half_written_indexes(folder: Path) -> None:
    """Remove what a kill leaves: stumps of index files, which Lite never loads (it makes missing ones), and of
    collections."""
    for path in [*folder.rglob("*.idx"), *folder.rglob("*.tmp")]:
        path.unlink()
    for path in folder.glob("out/milvus.db/collections/*"):  # Lite knows a collection by its schema.json
        if not (path / "schema.json").exists():
            shutil.rmtree(path)
