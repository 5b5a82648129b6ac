"""Kinds of vector index in Milvus: how each is built and searched, and its memory.

Only ``flat`` is exact. The others read some of the vectors: ``hnsw`` walks a graph of neighbours (Malkov and
Yashunin, arXiv 1603.09320), ``ivf_sq8`` reads the nearest cells, quantized to one byte per number.
"""

from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Any

from harr.io.files import read_state, write_json
from harr.params.index import IndexParams, KindName

INDEX_TYPES: dict[KindName, str] = {"flat": "FLAT", "hnsw": "HNSW", "ivf_sq8": "IVF_SQ8"}
"""Their names in Milvus."""
LINKS = 32
"""Number of neighbours that each vector links to in ``hnsw`` (M)."""
BUILD_EFFORT = 200
"""Number of candidates for a vector's links, hnsw's efConstruction (hnswlib's default)."""
ROWS_A_CELL = 39
"""Minimum number of training vectors per cell (faiss warns below it)."""
MOST_CELLS = 65_536
"""Maximum number of cells that a server accepts."""
BREADTH = 128
"""Number of candidates in a graph walk if ``index.breadth`` is 0."""
SEARCH = "search.json"
"""File with a collection's search parameters: another breadth needs no new collection."""


def describe_kind(params: IndexParams) -> dict[str, Any]:
    """Return the description of a collection's kind, {} for ``flat``; another one means a new collection.

    >>> describe_kind(IndexParams()), describe_kind(IndexParams(kind="hnsw"))
    ({}, {'kind': 'hnsw'})
    """
    return {} if params.kind == "flat" else {"kind": params.kind}


def index_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return Milvus's ``index_type`` and ``params`` for a collection with these ``rows`` and ``kind``.

    >>> index_of({"rows": 10_000, "kind": "ivf_sq8"})
    {'index_type': 'IVF_SQ8', 'params': {'params': {'nlist': 256}}}
    """
    kind: KindName = content.get("kind", "flat")
    cells = {"nlist": count_cells(content["rows"])}
    params = {"hnsw": {"M": LINKS, "efConstruction": BUILD_EFFORT}, "ivf_sq8": cells}.get(kind)
    # pymilvus flattens params, but Lite reads only a nested `params`; servers accept both.
    return {"index_type": INDEX_TYPES[kind], "params": {"params": params} if params else {}}


def build_seconds(rows: int) -> int:
    """Return the seconds that a server may take to build an index: half an hour, plus one for every 100 rows.

    pymilvus waits forever unless it gets an integer.
    """
    return 1_800 + rows // 100


def count_cells(rows: int) -> int:
    """Return the number of cells: four times the square root of the rows, each cell with at least 39 rows.

    >>> count_cells(1_000_000), count_cells(10_000)
    (4000, 256)
    """
    return max(1, min(4 * isqrt(rows), rows // ROWS_A_CELL, MOST_CELLS))


def note_search(folder: Path, params: IndexParams) -> None:
    """Write an index's search parameters to its folder; ``flat`` has none."""
    if params.kind != "flat":
        write_json(folder / SEARCH, {"kind": params.kind, "breadth": params.breadth})


def read_search(folder: Path, rebuild: str) -> dict[str, Any]:
    """Return the search parameters that :func:`note_search` wrote; {} for ``flat``.

    Raises:
        DamagedFile: the file is damaged.
    """
    if not (folder / SEARCH).exists():
        return {}
    return read_state(folder / SEARCH, f"run `{rebuild}`", kind=str, breadth=int)


def search_params(search: Mapping[str, Any], rows: int, limit: int) -> dict[str, int]:
    """Return the parameters to search the ``limit`` nearest of ``rows``; a walk has at least ``limit`` candidates.

    ``search`` may describe a collection that harr did not build, with its own ``cells`` or of kind ``diskann``.

    >>> search_params({"kind": "hnsw", "breadth": 0}, 10_000, 38), search_params({}, 10_000, 38)
    ({'ef': 128}, {})
    >>> search_params({"kind": "ivf_sq8", "breadth": 0}, 10_000, 38)
    {'nprobe': 64}
    """
    if not search or search["kind"] == "flat":
        return {}
    if search["kind"] == "ivf_sq8":
        total = search.get("cells") or count_cells(rows)
        return {"nprobe": min(search["breadth"] or max(1, total // 4), total)}
    return {"ef" if search["kind"] == "hnsw" else "search_list": max(search["breadth"] or BREADTH, limit)}


def memory_bytes(params: IndexParams, rows: int, width: int) -> float:
    """Estimate the bytes that a server needs to search vectors; Milvus Lite also needs the float32 vectors.

    ``hnsw`` has 2 M links of four bytes per vector in its lowest layer.

    >>> [round(memory_bytes(IndexParams(kind=kind), 1_000_000, 128) / 1e6) for kind in INDEX_TYPES]
    [512, 768, 128]
    """
    flat = 4.0 * rows * width
    return {"flat": flat, "hnsw": flat + 8.0 * rows * LINKS, "ivf_sq8": flat / 4}[params.kind]
