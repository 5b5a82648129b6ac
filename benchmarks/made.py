"""Digests of a stage's outputs that are equal whenever the outputs are."""

import csv
import hashlib
import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("outs", "metrics", "plots")
MADE = {
    name: [next(iter(out)) if isinstance(out, dict) else out for kind in KINDS for out in stage.get(kind, ())]
    for name, stage in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].items()
    if name != "inputs"
}
TIMES = {"seconds", "play_seconds", "texts_per_second", "rows_per_second", "embedded", "inserted"}
TIMES |= {"trains_again", *(f"since_training_{name}" for name in ("added", "removed", "changed", "share"))}
"""A stage's figures about the call itself: how long it took, and how much of the work it did."""


def artifacts(stage: str) -> dict[str, str]:
    """Return the digests of everything that a stage made, by name."""
    found = {}
    for out in MADE.get(stage, ()):
        if out == "data/index":  # its files depend on its batches, its rows do not
            found["rows of the index"], out = _rows(), "data/index/manifest.json"
        paths = sorted(Path(out).rglob("*")) if Path(out).is_dir() else [Path(out)]
        found |= {str(path): _digest(path) for path in paths if path.is_file()}
    return found


def _digest(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix == ".html":  # its links to Great Expectations' pages contain times
        data = re.sub(rb"\d{8}T\d{6}\.\d{6}Z", b"", data)
    rows = list(csv.DictReader(data.decode().splitlines())) if path.suffix == ".csv" else []
    if path.parts[0] == "metrics":
        rows = [json.loads(line) for line in (data.splitlines() if path.suffix == ".jsonl" else [data])]
    if rows:
        data = json.dumps([{name: row[name] for name in row if name not in TIMES} for row in rows]).encode()
    return hashlib.sha256(data).hexdigest()


def _rows() -> str:
    """Return the digest of all rows, vectors and texts that Milvus Lite returns."""
    from harr.corpus.vectors import Vectors
    from harr.index.passage_index import PassageIndex
    from harr.params import Params
    from harr.services.milvus_client import connect

    params, identity = Params.load().index, Vectors.open(Path("data/vectors")).identity
    with PassageIndex.open(Path("data/index"), params, identity=identity) as index:
        name = index._collection
    client = connect(params, str(Path("data/index/milvus.db").resolve()))
    try:
        client.load_collection(name)
        rows = client.query(name, filter="key >= 0", output_fields=["key", "vector", "text"], limit=10_000)
    finally:
        client.close()
    ordered = sorted((int(row["key"]), [float(x) for x in row["vector"]], row["text"]) for row in rows)
    return hashlib.sha256(json.dumps(ordered).encode()).hexdigest()
