"""The passage index in Milvus: nearest passages by vector and by BM25.

Each pair of corpus and encoder has one collection, alike in Milvus Lite (``milvus.db`` in the stage's output)
and on a Milvus server. Every open compares the live collection with the manifest.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.errors import DamagedFile, IndexMismatch
from harr.index import kinds
from harr.index.collection import content_of, count, where_of
from harr.index.full_text import prepare_text
from harr.io.files import read_manifest
from harr.params.index import IndexParams
from harr.services.milvus_client import REBUILD, Connection, connect, explain_errors

ROWS = "rows.npy"
"""The file with the rows of an index's passages, ascending."""
MANIFEST = {"collection": str, "rows": int, "width": int, "full_text": bool}
SEARCH_SECONDS = 60.0
QUERIES_PER_CALL = 1024
TIES = 8
"""Number of extra hits fetched, so that ties at the cut are resolved by row."""
DEPTH = 20
"""Minimum number of hits fetched per text, so that a search for a few more needs no new call."""
REMEMBERED = 10_000
"""Maximum number of texts in the hit cache."""


class PassageIndex:
    """An open index; close it or use ``with``, since Milvus Lite runs a server for it."""

    def __init__(self, client: Connection, where: str, manifest: dict[str, Any], rows: NDArray[np.int64]) -> None:
        """Take a checked collection and the whole corpus's indexed rows; use :meth:`open`."""
        self.connection = self._client = client
        self._all_rows = rows
        self._where = where
        self._manifest = manifest
        self._collection: str = manifest["collection"]
        self.rows: int = manifest["rows"]
        self.width: int = manifest["width"]
        self.full_text: bool = manifest["full_text"]
        self._search_settings: dict[str, Any] = manifest["search"]
        self._fields: dict[str, str] = {}
        self._search_options: dict[str, Any] = {"output_fields": ["key"]}
        self._text_hits: dict[str, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}

    @classmethod
    def open(cls, out: Path, params: IndexParams, *, identity: str) -> "PassageIndex":
        """Open the index that stage index published in ``out``; ``identity`` is that of the vectors.

        Raises:
            IndexMismatch: manifest or live collection belongs to another encoder or corpus, or lacks rows.
            ServiceUnavailable: there is no answer before the deadline, or the server refuses.
            DamagedFile: manifest or milvus.db is missing or unreadable.
        """
        manifest = read_manifest(out, REBUILD, keys=MANIFEST)
        if manifest["identity"] != identity:
            raise IndexMismatch(
                f"{out} was built as {manifest['identity']}, but encoder, dtype and corpus make {identity}; "
                f"run `{REBUILD}`"
            )
        for part in (*(() if params.uri else ("milvus.db",)), ROWS):
            if not (out / part).exists():
                raise DamagedFile(f"{out / part} is missing; run `{REBUILD}`")
        where = where_of(params, out)
        manifest |= {"search": kinds.read_search(out, REBUILD)}
        client = connect(params, where, reads=True)
        try:
            with explain_errors(where):
                for part in (manifest, *(manifest | part for part in manifest.get("sources", {}).values())):
                    _check(client, part, where)
        except BaseException:
            client.close()
            raise
        return cls(client, where, manifest, np.load(out / ROWS, mmap_mode="r", allow_pickle=False))

    def of_source(self, source: str) -> "PassageIndex":
        """Return the index of one source, over the same connection, which this index closes.

        Raises:
            IndexMismatch: the corpus has no such source.
        """
        parts = self._manifest.get("sources", {})
        if source not in parts:
            sources = f"has the sources {', '.join(parts)}" if parts else "names no sources"
            raise IndexMismatch(
                f"sources.{source}: {self._where} has no collection of {source}, since its corpus {sources}; correct "
                "sources in params.yaml, or set collection: corpus, or download a corpus that has it"
            )
        return PassageIndex(self._client, self._where, self._manifest | parts[source], self._all_rows)

    def list_rows(self) -> NDArray[np.int64]:
        """Return the rows of all indexed passages, ascending; even for one source those of the whole corpus."""
        return self._all_rows

    def search(self, vectors_QD: NDArray[np.float32], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return rows and inner products of the ``n`` nearest passages, shape (Q, n) each, in one call.

        Exact if ``index.kind`` is flat. Best first; scores that agree to 1e-6 are ordered by row. With fewer than
        ``n`` passages, rows are padded with -1 and scores with minus infinity.
        """
        vectors_QD = np.asarray(vectors_QD, dtype=np.float32)
        if vectors_QD.shape[1] != self.width:
            raise IndexMismatch(
                f"query vectors have width {vectors_QD.shape[1]}, but {self._where} holds width {self.width}; "
                f"set encoder in params.yaml to the one of the index, or run `{REBUILD}`"
            )
        return self._search("vector", list(vectors_QD), n)

    def search_text(self, texts: Sequence[str], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return rows and (positive) BM25 scores of the ``n`` best passages per text; shapes as in :meth:`search`.

        A passage that shares no word with a text, stop words aside, is not a hit; padding as in :meth:`search`. Hits
        are cached, since a pipeline that picks one passage after another repeats its searches.
        """
        if not self.full_text:
            raise IndexMismatch(f"{self._where} has no BM25 part; set index.full_text: true and run `dvc repro`")
        if len(self._text_hits) > REMEMBERED:
            self._text_hits.clear()
        words = {text: prepare_text(text, self._manifest.get("stemmer", "")) for text in texts}
        searchable = [text for text, query in words.items() if re.search(r"\w", query)]
        if new := [text for text in searchable if len(self._text_hits.get(text, ((), ()))[0]) < n]:
            hits = self._search("terms", [words[text] for text in new], max(n, DEPTH))
            self._text_hits.update(zip(new, zip(*hits, strict=True), strict=True))
        rows_QN, scores_QN = _empty(len(texts), n)
        for q, text in enumerate(texts):
            if text in self._text_hits:
                rows_QN[q], scores_QN[q] = (hits[:n] for hits in self._text_hits[text])
        return rows_QN, scores_QN

    def _search(self, field: str, queries: list[Any], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        rows_QN, scores_QN = _empty(len(queries), n)
        limit = max(1, min(n + TIES, self.rows))
        settings = kinds.search_params(self._search_settings, self.rows, limit) if field == "vector" else {}
        for start in range(0, len(queries), QUERIES_PER_CALL):
            with explain_errors(self._where):
                hits_by_query = self._client.search(
                    self._collection,
                    data=queries[start : start + QUERIES_PER_CALL],
                    anns_field=self._fields.get(field, field),
                    limit=limit,
                    search_params={"params": settings},
                    **self._search_options,
                    consistency_level="Strong",
                    timeout=min(SEARCH_SECONDS, self._client.patience),
                )
            for q, hits in enumerate(hits_by_query, start):
                rows, scores = self._rows(hits)
                # Lite gives negated BM25 scores; a BM25 score is never negative.
                scores = np.abs(scores) if field == "terms" else scores
                best = np.lexsort((rows, -scores.round(6)))[:n]
                rows_QN[q, : len(best)], scores_QN[q, : len(best)] = (rows[best], scores[best])
        return rows_QN, scores_QN

    def _rows(self, hits: Any) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the rows of hits and their scores."""
        return np.asarray(hits.ids, dtype=np.int64), np.asarray(hits.distances, dtype=np.float32)

    def close(self) -> None:
        """Disconnect and stop Milvus Lite's server."""
        self._client.close()

    def __enter__(self) -> "PassageIndex":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _empty(queries: int, n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    return np.full((queries, n), -1, dtype=np.int64), np.full((queries, n), -np.inf, dtype=np.float32)


def _check(client: Connection, manifest: dict[str, Any], where: str) -> None:
    """Compare the live collection with the stage's manifest."""
    name = manifest["collection"]
    if not client.has_collection(name):
        raise IndexMismatch(f"{where} has no collection {name}, which the manifest names; run `{REBUILD}`")
    built = content_of(client, name).get("identity")
    if built != manifest["identity"]:
        raise IndexMismatch(
            f"collection {name} at {where} was built as {built}, but its manifest says {manifest['identity']}; "
            f"run `{REBUILD}`"
        )
    rows = count(client, name, manifest["rows"])
    if rows != manifest["rows"]:
        raise IndexMismatch(
            f"collection {name} at {where} holds {rows} passages, its manifest says {manifest['rows']}; run `{REBUILD}`"
        )
