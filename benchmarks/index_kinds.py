"""Kinds of index over vectors of random walks: `python -m benchmarks.index_kinds 1000000`.

For each kind: seconds to build, bytes on disk, peak resident memory of the build and of the search (Milvus Lite works
within the process), recall@30 against a scan of all vectors, and queries per second, many at a time and one by one. A
walk stands for a text's passages: unit vectors, each a small step from the one before; queries are further steps.

Options: number of vectors, ``--width``, ``--kinds``, ``--uri`` of a server (token in $MILVUS_TOKEN; its memory is not
measured), ``--folder`` for the files (default: a temporary one, removed afterwards).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.million import place

WALK, STEP = 1_000, 0.3
"""Number of steps of a walk, and their length; consecutive passages have a cosine of .96."""
QUERIES, SINGLE, N = 200, 20, 30
KINDS = ("flat", "hnsw", "ivf_sq8")
"""Kinds that Milvus Lite has."""


class Rows:
    """A stand-in for ``harr.corpus.passages.Passages`` with one passage per vector, without texts."""

    sources = ()

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def searchable_rows(self, source: str = "") -> NDArray[np.int64]:
        """Return all rows."""
        return np.arange(self._rows)


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the vectors scaled to length 1."""
    made: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)
    return made


def walks(rows: int, width: int) -> NDArray[np.float32]:
    """Return unit vectors, (rows, width): walks of WALK steps, side by side."""
    draw, count = np.random.default_rng(0), -(-rows // WALK)
    steps = [unit(draw.normal(size=(count, width)))]
    while len(steps) < WALK:
        steps.append(unit(steps[-1] + STEP * draw.normal(size=(count, width)) / width**0.5))
    return np.stack(steps, axis=1).reshape(-1, width)[:rows]


def open_vectors(folder: Path):  # type: ignore[no-untyped-def]
    """Return the vectors on disk, making them if they are missing."""
    from harr.corpus.vectors import Vectors

    mapped = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
    return Vectors({"identity": f"walks{mapped.shape[1]}", "rows": len(mapped), "width": mapped.shape[1]}, [mapped])


def build(folder: Path, kind: str, uri: str) -> dict[str, float]:
    """Run stage index."""
    from harr.index.build import build_index
    from harr.params.index import IndexParams

    vectors, params = open_vectors(folder), IndexParams(kind=kind, uri=uri, full_text=False)
    figures = build_index(Rows(vectors.rows), vectors, params, folder / kind, folder / "work")  # type: ignore[arg-type]
    files = [path.stat().st_size for path in (folder / kind).rglob("*") if path.is_file()]
    return {
        "build_seconds": figures["seconds"],
        "files_mb": sum(files) / 1e6,
        "index_memory_mb": figures["index_memory_mb"],
    }


def search(folder: Path, kind: str, uri: str) -> dict[str, float]:
    """Return rates, and recall@30 by score: vectors as near as the 30th count as right."""
    from harr.index.passage_index import PassageIndex
    from harr.index.recall import recall_at
    from harr.params.index import IndexParams

    vectors, params, draw = (
        open_vectors(folder),
        IndexParams(kind=kind, uri=uri, full_text=False),
        np.random.default_rng(1),
    )
    near = vectors.take(draw.integers(vectors.rows, size=QUERIES))
    queries_QD = unit(near + STEP * draw.normal(size=near.shape) / vectors.width**0.5)
    with PassageIndex.open(folder / kind, params, identity=vectors.identity) as index:
        index.search(queries_QD[:1], N)
        began = time.monotonic()
        index.search(queries_QD, N)
        together = QUERIES / (time.monotonic() - began)
        began = time.monotonic()
        for query_D in queries_QD[:SINGLE]:
            index.search(query_D[None], N)
        alone = SINGLE / (time.monotonic() - began)
        recall = recall_at(index, vectors, np.arange(vectors.rows), queries_QD, N)
    return {f"recall_at_{N}": recall, "queries_per_second": together, "one_by_one_per_second": alone}


STAGES = {"build": build, "search": search}


def main() -> None:
    """Run all kinds, or one stage of one kind (as a child process)."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index_kinds", description=__doc__)
    parser.add_argument("vectors", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--uri", default="")
    parser.add_argument("--folder", default="")
    parser.add_argument("--stage", choices=STAGES, default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stage:
        figures = STAGES[asked.stage](Path(asked.folder), asked.kinds[0], asked.uri)
        figures["cpu_seconds"] = time.process_time()
        figures["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(figures))
        return
    with place(asked.folder) as folder:
        np.save(Path(folder) / "vectors.npy", walks(asked.vectors, asked.width), allow_pickle=False)
        for kind in asked.kinds:
            for stage in STAGES:
                options = ["--stage", stage, "--kinds", kind, "--uri", asked.uri, "--folder", folder]
                command = [sys.executable, "-m", "benchmarks.index_kinds", *options]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ), check=True)
                figures = json.loads(done.stdout.splitlines()[-1])
                line = ", ".join(
                    f"{name} {value:,.3g}" if value < 10 else f"{name} {value:,.0f}" for name, value in figures.items()
                )
                print(f"{kind} {stage}: {line}", flush=True)


if __name__ == "__main__":
    main()
