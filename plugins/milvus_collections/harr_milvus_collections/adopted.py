"""Search the user's own Milvus collection instead of one that harr builds.

Nothing is written to it. Its passages are those of the corpus, by id; what a filter excludes is not found.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.builders.encoder import build_encoder
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import IndexMismatch, ParamsError
from harr.index import kinds
from harr.index.corpus import Corpus, OtherIndex
from harr.index.passage_index import PassageIndex
from harr.io.files import fingerprint, publish, read_manifest, write_json
from harr.io.model_folder import DOCUMENT
from harr.io.progress import bar
from harr.params.embed import EncoderParams
from harr.params.faults import read_section
from harr.params.index import IndexParams
from harr.services.milvus_client import REBUILD, Connection, connect, explain_errors
from harr_milvus_collections.params import AdoptParams, read_adopted
from harr_milvus_collections.shelf import PER_CALL, Hits, Shelf, ShelvedPassages, ShelvedVectors, by_ids

METRICS = ("IP", "COSINE", "L2")
"""Metrics that give unit vectors the same order."""
SAMPLED = 100
"""Number of passages whose vectors are compared."""
LEAST_COSINE = 0.99
"""Minimum cosine of a passage's vectors there and here: the same encoder with slightly different arithmetic."""
EMBEDDED = 20
"""Number of passages embedded again if the collection has no corpus."""
LEAST_MEDIAN = 0.9
"""Minimum median cosine of their vectors there and here; shortened texts and another precision differ a little."""
ROWS = "rows.npy"


def adopt_collection(
    passages: Passages, vectors: Vectors, params: IndexParams, out: Path, work: Path
) -> dict[str, float]:
    """Compare a user's collection with corpus and vectors, and publish in ``out`` how it is searched.

    Returns:
        Figures for the metrics file, named as for a build.

    Raises:
        ParamsError: collection or field is missing, or has another type, width or metric.
        IndexMismatch: passages are missing without a filter, or vectors are of another encoder.
        ServiceUnavailable: Milvus cannot be reached, or rejects the filter.
    """
    section = read_adopted(params)
    client = connect(params, params.uri)
    try:
        with explain_errors(client.where):
            how = _described(client, section, vectors.width)
            ids = set(_ids(client, section))
            rows_of = passages.rows_of(ids)
            searchable = passages.searchable
            rows = np.array(sorted(row for row in rows_of.values() if searchable[row]), dtype=np.int64)
            _check_rows(section, rows, len(passages.searchable_rows()), client.where)
            cosine = _least_cosine(client, section, how["number"], passages, vectors, rows)
    finally:
        client.close()
    content = {"identity": vectors.identity, "collection": section.collection, "rows": len(rows), "full_text": False}
    manifest = {**content, "width": vectors.width, "settings": _kept(section), "how": how}
    folder = work / fingerprint(manifest)
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


def open_adopted(passages: Passages, vectors: Vectors, params: IndexParams, out: Path) -> PassageIndex:
    """Open the collection that stage index compared and described in ``out``.

    Raises:
        IndexMismatch, ServiceUnavailable, DamagedFile: as :meth:`PassageIndex.open`.
    """
    section = read_adopted(params)
    manifest = read_manifest(out, REBUILD, keys={"collection": str, "rows": int, "width": int, "full_text": bool})
    if manifest["identity"] != vectors.identity or manifest.get("settings") != _kept(section):
        raise IndexMismatch(f"{out} was made for other vectors, or for other index.settings; run `{REBUILD}`")
    client = connect(params, params.uri)
    try:
        with explain_errors(client.where):
            if not client.has_collection(section.collection):
                raise IndexMismatch(f"{client.where} has no collection {section.collection} any more")
            client.load_collection(section.collection)
    except BaseException:
        client.close()
        raise
    search = manifest["how"] | {"breadth": section.breadth}

    def rows_of(hits: Hits) -> Mapping[str, int]:
        return passages.rows_of(name for name, _ in hits)

    rows = np.load(out / ROWS, allow_pickle=False)
    return AdoptedIndex(client, manifest | {"search": search}, section, rows, rows_of)


@contextmanager
def open_collection(params: IndexParams) -> Iterator[Corpus]:
    """Open an adopted collection without a corpus: it provides the passages and vectors.

    Raises:
        ParamsError: collection or field is missing, or has another type or metric.
        ServiceUnavailable: Milvus cannot be reached.
    """
    section = read_adopted(params)
    client = connect(params, params.uri)
    try:
        name = section.collection
        with explain_errors(client.where):
            how = _described(client, section, 0)
            client.load_collection(name)
            rows = int(client.query(name, filter=section.filter, output_fields=["count(*)"])[0]["count(*)"])
        manifest = {"identity": name, "collection": name, "rows": rows, "full_text": False}
        manifest |= {"width": how["width"], "how": how, "search": how | {"breadth": section.breadth}}
        shelf = Shelf(client, section, how["number"], how["width"])
        none = np.zeros(0, dtype=np.int64)  # rows are assigned as passages are found
        index = AdoptedIndex(client, manifest, section, none, shelf.put, shelf.fields, shelf.make_room)
        passages, vectors = ShelvedPassages(shelf, rows), ShelvedVectors(shelf, manifest)
        yield Corpus(passages, vectors, index, check=partial(_check_texts, passages, vectors))
    finally:
        client.close()


INDEX = OtherIndex(adopt_collection, open_adopted, open_collection)
"""The index for ``index.function``."""


@contextmanager
def collection(uri: str, *, token_variable: str = "MILVUS_TOKEN", **settings: Any) -> Iterator[Corpus]:
    """Open a collection as the corpus of ``harr.Retriever.load(folder, index=collection(...))``, without a project.

    Args:
        uri: address of the Milvus server.
        token_variable: name of the environment variable with its token.
        settings: those of :class:`harr_milvus_collections.params.AdoptParams`.

    Raises:
        ParamsError: a wrong setting, or collection or field is missing. ServiceUnavailable: Milvus cannot be reached.
    """
    own = {"uri": uri, "token_variable": token_variable, "function": f"{__name__}:INDEX", "settings": settings}
    with open_collection(read_section(IndexParams, own | {"full_text": False}, "index")) as corpus:
        yield corpus


class AdoptedIndex(PassageIndex):
    """An open collection of the user's; hits with an id that the corpus lacks are left out."""

    def __init__(
        self,
        client: Connection,
        manifest: dict[str, Any],
        section: AdoptParams,
        rows: NDArray[np.int64],
        rows_of: Callable[[Hits], Mapping[str, int]],
        fields: Sequence[str] = (),
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        """Store a checked collection, its ``rows``, the function from hits to rows, and the fields to read; use
        :func:`open_adopted`."""
        super().__init__(client, client.where, manifest, rows)
        self._section, self._rows_of, self._make_room = section, rows_of, make_room
        self._fields = {"vector": section.vector_field}
        self._search_options = {"filter": section.filter, "output_fields": list(fields) or [section.id_field]}
        self._sign = -1.0 if manifest["how"]["metric"] == "L2" else 1.0

    def _search(self, field: str, queries: list[Any], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        self._make_room()
        return super()._search(field, queries, n)

    def _rows(self, hits: Any) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the rows of hits; a score is their inner product, or the negated distance."""
        named = [hit["entity"].get(self._section.id_field) for hit in hits]
        ids = [str(key if name is None else name) for name, key in zip(named, hits.ids, strict=True)]
        row_of = self._rows_of([(name, hit["entity"]) for name, hit in zip(ids, hits, strict=True)])
        known = [place for place, name in enumerate(ids) if name in row_of]
        scores = self._sign * np.asarray(hits.distances, dtype=np.float32)
        return np.array([row_of[ids[place]] for place in known], dtype=np.int64), scores[known]


def _described(client: Connection, section: AdoptParams, width: int) -> dict[str, Any]:
    """Return how a collection is searched, after checking its fields, the width of its vectors and their metric.

    A ``width`` of 0 accepts any, and then passages are read from there, too.
    """
    name = section.collection
    if not client.has_collection(name):
        there = ", ".join(sorted(client.list_collections())[:5]) or "none"
        raise ParamsError(f"index.settings.collection: {client.where} has no collection {name}; it has {there}")
    described = client.describe_collection(name)
    fields = {field["name"]: field for field in described["fields"]}
    for key in ("id_field", "vector_field") if width else ("id_field", "vector_field", "text_field", "title_field"):
        field = getattr(section, key)
        if field and field not in fields and (key == "vector_field" or not described.get("enable_dynamic_field")):
            raise ParamsError(
                f"index.settings.{key}: collection {name} has no field {field}; it has {', '.join(fields)}"
            )
    there = fields[section.vector_field].get("params", {}).get("dim")
    if there is None or (width and int(there) != width):
        raise ParamsError(
            f"index.settings.vector_field: {section.vector_field} of collection {name} has width {there}, data/vectors has "
            f"{width}; set encoder to what embedded the collection"
        )
    indexes = client.list_indexes(name, field_name=section.vector_field)
    if not indexes:
        raise ParamsError(
            f"index.settings.vector_field: {section.vector_field} of collection {name} has no index; make one"
        )
    index = client.describe_index(name, indexes[0])
    if (metric := index["metric_type"]) not in METRICS:
        raise ParamsError(
            f"index.settings.vector_field: {section.vector_field} of collection {name} is compared by {metric}; "
            f"expected {', '.join(METRICS)}"
        )
    # A server spreads out the parameters of an index, Milvus Lite keeps them together.
    cells = index.get("nlist") or (index.get("params") or {}).get("nlist") or 0
    known: dict[str, str] = {name: kind for kind, name in kinds.INDEX_TYPES.items()}
    known |= {"IVF_FLAT": "ivf_sq8", "DISKANN": "diskann"}
    number = "INT" in getattr(fields.get(section.id_field, {}).get("type"), "name", "")
    kind = known.get(index["index_type"], "flat")
    return {"kind": kind, "metric": metric, "cells": int(cells), "number": number, "width": int(there)}


def _ids(client: Connection, section: AdoptParams) -> Iterable[str]:
    """Yield the ids of all passages that pass the filter."""
    client.load_collection(section.collection)
    total = client.query(section.collection, filter=section.filter, output_fields=["count(*)"])[0]["count(*)"]
    pages = client.query_iterator(
        section.collection, batch_size=PER_CALL, filter=section.filter, output_fields=[section.id_field]
    )
    with bar(total=int(total), desc="adopt", unit="passage") as progress:
        while batch := pages.next():
            yield from (str(one[section.id_field]) for one in batch)
            progress.update(len(batch))
    pages.close()


def _check_rows(section: AdoptParams, rows: NDArray[np.int64], searchable: int, where: str) -> None:
    """Check that a collection has the passages of the corpus."""
    if not len(rows):
        raise IndexMismatch(
            f"collection {section.collection} at {where} has no passage of data/corpus by its {section.id_field}; "
            "correct index.settings.id_field or index.settings.filter, or download the corpus that it was made from"
        )
    if not section.filter and len(rows) < searchable:
        raise IndexMismatch(
            f"collection {section.collection} at {where} lacks {searchable - len(rows):,} of the {searchable:,} passages "
            "of data/corpus; add them there, or download the corpus that it was made from"
        )


def _least_cosine(
    client: Connection,
    section: AdoptParams,
    number: bool,
    passages: Passages,
    vectors: Vectors,
    rows: NDArray[np.int64],
) -> float:
    """Return the smallest cosine between some vectors there and here.

    Raises:
        IndexMismatch: they are of another encoder, or not of length 1 if that matters.
    """
    sample = rows[np.unique(np.linspace(0, len(rows) - 1, SAMPLED).astype(int))]
    row_of = {passage.id: row for passage, row in zip(passages.take(sample.tolist()), sample.tolist(), strict=True)}
    stored = by_ids(client, section, number, row_of, [section.id_field, section.vector_field])
    there_SD = np.array([one[section.vector_field] for one in stored], dtype=np.float32)
    here_SD = vectors.take(np.array([row_of[str(one[section.id_field])] for one in stored]))
    lengths = np.linalg.norm(there_SD, axis=1)
    least = float(((there_SD * here_SD).sum(1) / lengths).min())
    if least < LEAST_COSINE or np.abs(lengths - 1).max() > 1 - LEAST_COSINE:
        raise IndexMismatch(
            f"vectors of collection {section.collection} are not those of data/vectors: smallest cosine {least:.3f}, "
            f"lengths {lengths.min():.2f} to {lengths.max():.2f}, of {len(stored)} passages; expected the same encoder "
            "and length 1; set encoder to what embedded the collection"
        )
    return least


def _kept(section: AdoptParams) -> dict[str, Any]:
    """Return the settings for the manifest, without breadth, which makes no other collection."""
    return section.model_dump(exclude={"breadth"})


def _check_texts(passages: ShelvedPassages, vectors: Vectors, folder: Path, facts: Mapping[str, Any]) -> None:
    """Embed some passages of a collection as a trained retriever would, since nobody knows what embedded them.

    Raises:
        IndexMismatch: they were embedded by another encoder, or from other texts.
    """
    if not (folder / DOCUMENT).is_dir():  # merge.towers: query
        return
    rows = passages.sample(EMBEDDED)
    there = vectors.take(np.array(rows))
    encoder = build_encoder(EncoderParams(model=str(folder / DOCUMENT), **facts["encoder"]))
    sample = passages.take(rows)
    width, cosine = encoder.width, 0.0
    for texts in ([one.content for one in sample], [one.text for one in sample]) if width == there.shape[1] else ():
        here = encoder.encode(texts, prompt=encoder.passage_prompt)
        cosine = max(cosine, float(np.median((here * there).sum(-1))))
    if cosine < LEAST_MEDIAN:
        raise IndexMismatch(
            f"vectors of the adopted collection have width {there.shape[1]} and a cosine of {cosine:.2f} with those "
            f"that {folder} was trained for (width {width}), of {len(rows)} passages; name a collection that was "
            "embedded with the same encoder, and text_field and title_field as it was"
        )
