"""A collection of Milvus that the user already has is searched in place of one that harr builds (``index.adopt``).

Nothing is written into it. Its passages are those of the corpus, by their ids; what a filter leaves out is not found.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import IndexMismatch, ParamsError
from harr.index import kinds
from harr.index.collection import NO_KEYS
from harr.index.passage_index import PassageIndex
from harr.index.shelf import PER_CALL, Found, Shelf, ShelvedPassages, ShelvedVectors, by_ids
from harr.io.files import publish, read_manifest, write_json
from harr.io.progress import bar
from harr.io.resume import unfinished
from harr.params.index import AdoptParams, IndexParams
from harr.services.milvus_client import REBUILD, Connection, connect, explained

METRICS = ("IP", "COSINE", "L2")
"""Metrics that order unit vectors alike."""
SAMPLED = 100
"""Number of passages whose vectors are compared."""
LEAST_COSINE = 0.99
"""Cosine at least of a passage's vector there and here: the encoder is the same, its arithmetic may differ a little."""
ROWS = "rows.npy"


def adopt_collection(
    passages: Passages, vectors: Vectors, params: IndexParams, out: Path, work: Path
) -> dict[str, float]:
    """Compare a user's collection with corpus and vectors, and publish in ``out`` how it is searched.

    Returns:
        Figures for the metrics file, named as those of a build.

    Raises:
        ParamsError: collection or field is not there, or has another type, width or metric.
        IndexMismatch: passages are missing without a filter, or vectors are of another encoder.
        ServiceUnavailable: Milvus cannot be reached, or does not take the filter.
    """
    told = _told(params)
    client = connect(params, params.uri)
    try:
        with explained(client.where):
            how = _described(client, told, vectors.width)
            ids = set(_ids(client, told))
            rows_of = passages.rows_of(ids)
            searchable = passages.searchable
            rows = np.array(sorted(row for row in rows_of.values() if searchable[row]), dtype=np.int64)
            _check_rows(told, rows, len(passages.searchable_rows()), client.where)
            cosine = _least_cosine(client, told, how["number"], passages, vectors, rows)
    finally:
        client.close()
    content = {"identity": vectors.identity, "collection": told.collection, "rows": len(rows), "full_text": False}
    manifest = {**content, "width": vectors.width, "adopt": told.model_dump(), "found": how}
    folder = unfinished(work, manifest)
    (folder / "out").mkdir(parents=True, exist_ok=True)
    np.save(folder / "out" / ROWS, rows, allow_pickle=False)
    write_json(folder / "out" / "manifest.json", manifest)
    publish(folder / "out", out)
    folder.with_suffix(".json").unlink(missing_ok=True)
    folder.rmdir()
    return {
        "rows": len(rows),
        "indexed": len(rows),
        "corpus_rows": len(passages),
        "inserted": 0,
        "unknown": len(ids) - len(rows),
        "least_cosine": cosine,
    }


def open_index(passages: Passages, vectors: Vectors, params: IndexParams, out: Path) -> PassageIndex:
    """Open what stage index published in ``out``: harr's own collection, or the one that was adopted.

    Raises:
        IndexMismatch, ServiceUnavailable, DamagedFile: as :meth:`PassageIndex.open`.
    """
    if params.adopt is None:
        return PassageIndex.open(out, params, identity=vectors.identity)
    manifest = read_manifest(out, REBUILD, keys={"collection": str, "rows": int, "width": int, "full_text": bool})
    if manifest["identity"] != vectors.identity or manifest.get("adopt") != params.adopt.model_dump():
        raise IndexMismatch(f"{out} was made for other vectors, or for another index.adopt; run `{REBUILD}`")
    client = connect(params, params.uri)
    try:
        with explained(client.where):
            if not client.has_collection(params.adopt.collection):
                raise IndexMismatch(f"{client.where} has no collection {params.adopt.collection} any more")
            client.load_collection(params.adopt.collection)
    except BaseException:
        client.close()
        raise
    search = manifest["found"] | {"breadth": params.breadth}

    def rows_of(found: Found) -> Mapping[str, int]:
        return passages.rows_of(name for name, _ in found)

    return AdoptedIndex(client, manifest | {"search": search}, params.adopt, rows_of)


def open_collection(params: IndexParams) -> "tuple[ShelvedPassages, ShelvedVectors, PassageIndex]":
    """Open an adopted collection without a corpus beside it: passages and vectors are what it holds.

    The index closes the connection.

    Raises:
        ParamsError: collection or field is not there, or has another type or metric.
        ServiceUnavailable: Milvus cannot be reached.
    """
    told = _told(params)
    client = connect(params, params.uri)
    try:
        with explained(client.where):
            how = _described(client, told, 0)
            client.load_collection(told.collection)
            rows = int(client.query(told.collection, filter=told.filter, output_fields=["count(*)"])[0]["count(*)"])
    except BaseException:
        client.close()
        raise
    manifest = {"identity": told.collection, "collection": told.collection, "rows": rows, "full_text": False}
    manifest |= {"width": how["width"], "found": how, "search": how | {"breadth": params.breadth}}
    shelf = Shelf(client, told, how["number"], how["width"])
    index = AdoptedIndex(client, manifest, told, shelf.put, shelf.fields, shelf.make_room)
    return ShelvedPassages(shelf, rows), ShelvedVectors(shelf, manifest), index


def adopted_rows(out: Path) -> NDArray[np.int64]:
    """Return the rows of the passages that the collection had when it was adopted in ``out``, ascending."""
    rows: NDArray[np.int64] = np.load(out / ROWS, allow_pickle=False)
    return rows


class AdoptedIndex(PassageIndex):
    """An open collection of the user's; hits whose id the corpus lacks are left out."""

    def __init__(
        self,
        client: Connection,
        manifest: dict[str, Any],
        adopt: AdoptParams,
        rows_of: Callable[[Found], Mapping[str, int]],
        fields: Sequence[str] = (),
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        """Take a checked collection, what gives rows to hits, and the fields that it reads; use :func:`open_index`."""
        super().__init__(client, client.where, manifest, NO_KEYS)
        self._adopt, self._rows_of, self._make_room = adopt, rows_of, make_room
        self._fields = {"vector": adopt.vector_field}
        self._wanted = {"filter": adopt.filter, "output_fields": list(fields) or [adopt.id_field]}
        self._sign = -1.0 if manifest["found"]["metric"] == "L2" else 1.0

    def _search(self, field: str, queries: list[Any], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        self._make_room()
        return super()._search(field, queries, n)

    def _rows(self, hits: Any) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the rows of hits; a score is their inner product, or the distance with its sign turned."""
        named = [hit["entity"].get(self._adopt.id_field) for hit in hits]
        ids = [str(key if name is None else name) for name, key in zip(named, hits.ids, strict=True)]
        row_of = self._rows_of([(name, hit["entity"]) for name, hit in zip(ids, hits, strict=True)])
        known = [place for place, name in enumerate(ids) if name in row_of]
        scores = self._sign * np.asarray(hits.distances, dtype=np.float32)
        return np.array([row_of[ids[place]] for place in known], dtype=np.int64), scores[known]


def _told(params: IndexParams) -> AdoptParams:
    assert params.adopt is not None
    return params.adopt


def _described(client: Connection, told: AdoptParams, width: int) -> dict[str, Any]:
    """Return how a collection is searched, after a look at its fields, the width of its vectors and their metric.

    A ``width`` of 0 takes any, and then passages are read from there, too.
    """
    name = told.collection
    if not client.has_collection(name):
        there = ", ".join(sorted(client.list_collections())[:5]) or "none"
        raise ParamsError(f"index.adopt.collection: {client.where} has no collection {name}; it has {there}")
    described = client.describe_collection(name)
    fields = {field["name"]: field for field in described["fields"]}
    for key in ("id_field", "vector_field") if width else ("id_field", "vector_field", "text_field", "title_field"):
        field = getattr(told, key)
        if field and field not in fields and (key == "vector_field" or not described.get("enable_dynamic_field")):
            raise ParamsError(f"index.adopt.{key}: collection {name} has no field {field}; it has {', '.join(fields)}")
    there = fields[told.vector_field].get("params", {}).get("dim")
    if there is None or (width and int(there) != width):
        raise ParamsError(
            f"index.adopt.vector_field: {told.vector_field} of collection {name} has width {there}, data/vectors has "
            f"{width}; set encoder to what embedded the collection"
        )
    indexes = client.list_indexes(name, field_name=told.vector_field)
    if not indexes:
        raise ParamsError(f"index.adopt.vector_field: {told.vector_field} of collection {name} has no index; make one")
    index = client.describe_index(name, indexes[0])
    if (metric := index["metric_type"]) not in METRICS:
        raise ParamsError(
            f"index.adopt.vector_field: {told.vector_field} of collection {name} is compared by {metric}; "
            f"expected {', '.join(METRICS)}"
        )
    # A server spreads the parameters of an index out, Milvus Lite keeps them together.
    cells = index.get("nlist") or (index.get("params") or {}).get("nlist") or 0
    known = {found: kind for kind, found in kinds.INDEX_TYPES.items()} | {"IVF_FLAT": "ivf_sq8"}
    number = "INT" in getattr(fields.get(told.id_field, {}).get("type"), "name", "")
    kind = known.get(index["index_type"], "flat")
    return {"kind": kind, "metric": metric, "cells": int(cells), "number": number, "width": int(there)}


def _ids(client: Connection, told: AdoptParams) -> Iterable[str]:
    """Yield the ids of all passages that the filter leaves."""
    client.load_collection(told.collection)
    total = client.query(told.collection, filter=told.filter, output_fields=["count(*)"])[0]["count(*)"]
    found = client.query_iterator(
        told.collection, batch_size=PER_CALL, filter=told.filter, output_fields=[told.id_field]
    )
    with bar(total=int(total), desc="adopt", unit="passage") as progress:
        while batch := found.next():
            yield from (str(one[told.id_field]) for one in batch)
            progress.update(len(batch))
    found.close()


def _check_rows(told: AdoptParams, rows: NDArray[np.int64], searchable: int, where: str) -> None:
    """Refuse a collection that has not the passages of the corpus."""
    if not len(rows):
        raise IndexMismatch(
            f"collection {told.collection} at {where} has no passage of data/corpus by its {told.id_field}; "
            "correct index.adopt.id_field or index.adopt.filter, or download the corpus that it was made from"
        )
    if not told.filter and len(rows) < searchable:
        raise IndexMismatch(
            f"collection {told.collection} at {where} lacks {searchable - len(rows):,} of the {searchable:,} passages "
            "of data/corpus; add them there, or download the corpus that it was made from"
        )


def _least_cosine(
    client: Connection, told: AdoptParams, number: bool, passages: Passages, vectors: Vectors, rows: NDArray[np.int64]
) -> float:
    """Return the smallest cosine between some vectors there and here.

    Raises:
        IndexMismatch: they are of another encoder, or not of length 1 where that matters.
    """
    sample = rows[np.unique(np.linspace(0, len(rows) - 1, SAMPLED).astype(int))]
    row_of = {passage.id: row for passage, row in zip(passages.take(sample.tolist()), sample.tolist(), strict=True)}
    found = by_ids(client, told, number, row_of, [told.id_field, told.vector_field])
    there_SD = np.array([one[told.vector_field] for one in found], dtype=np.float32)
    here_SD = vectors.take(np.array([row_of[str(one[told.id_field])] for one in found]))
    lengths = np.linalg.norm(there_SD, axis=1)
    least = float(((there_SD * here_SD).sum(1) / lengths).min())
    if least < LEAST_COSINE or np.abs(lengths - 1).max() > 1 - LEAST_COSINE:
        raise IndexMismatch(
            f"vectors of collection {told.collection} are not those of data/vectors: smallest cosine {least:.3f}, "
            f"lengths {lengths.min():.2f} to {lengths.max():.2f}, of {len(found)} passages; expected the same encoder "
            "and length 1; set encoder to what embedded the collection"
        )
    return least
