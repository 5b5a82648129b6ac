"""The kinds of index that Milvus offers for vectors: how each is built and searched, and what memory it takes.

Only ``flat`` finds the nearest passages for certain. The others look at a part of the vectors: ``hnsw`` walks a graph
of neighbours (Malkov and Yashunin, arXiv 1603.09320), ``ivf_sq8`` reads the cells that lie nearest, a byte a number,
and ``diskann`` walks a graph on the server's disk (Subramanya et al., NeurIPS 2019).
"""

from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Any

from tqdm import tqdm

from harr.io.files import read_state, write_json
from harr.params.index import IndexParams, KindName

INDEX_TYPES: dict[KindName, str] = {"flat": "FLAT", "hnsw": "HNSW", "ivf_sq8": "IVF_SQ8", "diskann": "DISKANN"}
"""What Milvus calls them."""
BUILD_EFFORT = 200
"""Number of candidates that are weighed for the links of a vector, hnsw's efConstruction (hnswlib's default)."""
ROWS_A_CELL = 39
"""Number of vectors at least that a cell is placed by (faiss warns below it)."""
MOST_CELLS = 65_536
"""Largest number of cells that a server takes."""
BREADTH = 128
"""Number of candidates that a walk through a graph keeps, where ``index.breadth`` is 0."""
SEARCH = "search.json"
"""Where stage index notes how its collection is searched: another breadth is no other collection."""


def built_as(params: IndexParams) -> dict[str, Any]:
    """Return what tells a collection's kind, empty for ``flat``; where it differs, the collection is made anew.

    >>> built_as(IndexParams()), built_as(IndexParams(kind="hnsw"))
    ({}, {'kind': {'kind': 'hnsw', 'links': 32}})
    """
    told = {"hnsw": {"links": params.links}, "ivf_sq8": {"cells": params.cells}}
    return {} if params.kind == "flat" else {"kind": {"kind": params.kind, **told.get(params.kind, {})}}


def index_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``index_type`` and ``params`` of Milvus for a collection of so many ``rows`` and this ``kind``.

    >>> index_of({"rows": 10_000, "kind": {"kind": "ivf_sq8", "cells": 0}})
    {'index_type': 'IVF_SQ8', 'params': {'params': {'nlist': 256}}}
    """
    kind = content.get("kind", {"kind": "flat"})
    params: dict[str, int] = {}
    if kind["kind"] == "hnsw":
        params = {"M": kind["links"], "efConstruction": BUILD_EFFORT}
    elif kind["kind"] == "ivf_sq8":
        params = {"nlist": cells(kind["cells"], content["rows"])}
    # pymilvus flattens params, and Lite reads none but a nested `params`; servers take both.
    return {"index_type": INDEX_TYPES[kind["kind"]], "params": {"params": params} if params else {}}


def build_seconds(rows: int) -> int:
    """Return the seconds that a server may take for an index: half an hour, and one for each 100 rows.

    pymilvus waits for ever unless it is given a whole number.
    """
    return 1_800 + rows // 100


def tried_as(params: IndexParams) -> dict[str, Any]:
    """Return :func:`index_of` the few vectors that a server is tried with."""
    from harr.services.milvus_client import TRIED_ROWS  # loads pymilvus, which the limits of a run do without

    return index_of({"rows": TRIED_ROWS, **built_as(params)})


def cells(asked: int, rows: int) -> int:
    """Return the number of cells: as asked, or four times the root of the rows, as Milvus advises, of 39 rows at least.

    >>> cells(0, 1_000_000), cells(0, 10_000)
    (4000, 256)
    """
    return max(1, min(asked or min(4 * isqrt(rows), rows // ROWS_A_CELL), rows, MOST_CELLS))


def note_search(folder: Path, params: IndexParams) -> None:
    """Write down beside an index how it is searched; nothing of ``flat``, which has no choice."""
    if params.kind != "flat":
        write_json(folder / SEARCH, {"kind": params.kind, "breadth": params.breadth, "cells": params.cells})


def read_search(folder: Path, rebuild: str) -> dict[str, Any]:
    """Return what :func:`note_search` wrote; empty for ``flat``.

    Raises:
        DamagedFile: it is not as it was written.
    """
    if not (folder / SEARCH).exists():
        return {}
    return read_state(folder / SEARCH, f"run `{rebuild}`", kind=str, breadth=int, cells=int)


def search_params(search: Mapping[str, Any], rows: int, limit: int) -> dict[str, int]:
    """Return the parameters of a search for the ``limit`` nearest of ``rows``; a walk keeps as many, at least.

    >>> search_params({"kind": "hnsw", "breadth": 0}, 10_000, 38), search_params({}, 10_000, 38)
    ({'ef': 128}, {})
    >>> search_params({"kind": "ivf_sq8", "breadth": 0, "cells": 0}, 10_000, 38)
    {'nprobe': 64}
    """
    if not search or search["kind"] == "flat":
        return {}
    if search["kind"] == "ivf_sq8":
        there = cells(search["cells"], rows)
        return {"nprobe": min(search["breadth"] or max(1, there // 4), there)}
    return {"ef" if search["kind"] == "hnsw" else "search_list": max(search["breadth"] or BREADTH, limit)}


def memory_bytes(params: IndexParams, rows: int, width: int) -> float:
    """Return about how much memory a server needs to search vectors; Milvus Lite holds the float32 vectors besides.

    ``hnsw`` has 2 M links in its lowest layer, of four bytes each. ``diskann`` keeps its codes and a cache, an eighth
    and a tenth of the vectors (the server's defaults), and the rest on the server's disk.

    >>> [round(memory_bytes(IndexParams(kind=kind), 1_000_000, 128) / 1e6) for kind in INDEX_TYPES]
    [512, 768, 128, 115]
    """
    flat = 4.0 * rows * width
    graph = 8.0 * rows * params.links
    return {"flat": flat, "hnsw": flat + graph, "ivf_sq8": flat / 4, "diskann": flat * 0.225}[params.kind]


def tell_memory(params: IndexParams, rows: int, width: int, where: str) -> float:
    """Write one line about the memory that an index ``where`` will need, and return the bytes."""
    needed = memory_bytes(params, rows, width)
    tqdm.write(f"index {params.kind} of {rows:,} x {width}: about {needed / 1e6:,.0f} MB of memory at {where}")
    return needed
