"""Stage index: vectors and texts into Milvus."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harr.io.files import finish, read_manifest
from harr.params import Params
from tasks.common import read_vectors_manifest
from tasks.expectations.process import expect
from tasks.paths import CORPUS, INDEX, QUESTIONS, SINCE, TRAINED_ON, VALIDATION, VECTORS, WORK
from tasks.runtime.stage import main
from tasks.tracking.run import Run

MOVES = ("collection", "identity", "rows", "sha256", "sources")
"""Keys of an index's manifest about its passages, not about how it was built."""


def index_passages(params: Params) -> dict[str, float]:
    """Build the collection, or resume a killed build, and test what it finds."""
    from harr.corpus.passages import Passages, read_questions
    from harr.corpus.vectors import Vectors
    from harr.index.build import build_index
    from harr.index.corpus import other_index
    from harr.index.recall import check_recall

    passages = Passages.open(CORPUS)
    vectors = Vectors.of(passages, VECTORS)
    other = other_index(params.index)
    build = other.build if other else build_index
    built = build(passages, vectors, params.index, INDEX, WORK / "index")
    questions = [question.text for question in read_questions(QUESTIONS / "train.jsonl")]
    encode = partial(_as_queries, params)
    return built | check_recall(passages, vectors, params.index, INDEX, questions, encode, params.retriever.pool)


def decide_training(params: Params) -> dict[str, float]:
    """Record what to train on if it differs from what was trained on by more than ``index.retrain_after``.

    Pairs of leret belong to one index, so any change makes them anew.
    """
    from harr.corpus.changes import TrainedOn
    from harr.corpus.passages import Passages
    from harr.errors import DamagedFile
    from harr.index import kinds
    from harr.services.milvus_client import REBUILD

    vectors = {name: value for name, value in read_vectors_manifest().items() if name in ("dtype", "encoder", "tokens")}
    index = {name: value for name, value in read_manifest(INDEX, REBUILD, shards=False).items() if name not in MOVES}
    manifests = {"vectors": vectors, "index": index | kinds.read_search(INDEX, REBUILD)}
    today = TrainedOn.of(Passages.open(CORPUS), [QUESTIONS / "train.jsonl", VALIDATION], manifests)
    try:
        changes = today.changes_since(TrainedOn.open(TRAINED_ON))
    except DamagedFile:
        changes = None
    again = changes is None or changes.requires_training(0.0 if params.train.prefers else params.index.retrain_after)
    if again:
        today.save(TRAINED_ON, WORK / "trained_on")
    figures = {"passages": float(len(today.marks[0]))}
    if changes and not again:
        figures = {name: float(getattr(changes, name)) for name in ("passages", "added", "removed", "changed", "share")}
    return {"trains_again": float(again), **{f"{SINCE}_{name}": value for name, value in figures.items()}}


def _as_queries(params: Params, texts: Sequence[str]) -> NDArray[np.float32]:
    """Embed texts as the untrained retriever embeds queries."""
    from harr.builders.encoder import build_encoder

    encoder = build_encoder(params.encoder)
    return encoder.encode(texts, prompt=encoder.plain_prompt)


def index_frame(figures: Mapping[str, float]) -> pd.DataFrame:
    """Return the counts of collections, corpus and vectors for the suite ``index``: every passage must be found."""
    from harr.corpus.passages import Passages
    from harr.services.milvus_client import REBUILD

    passages, manifest = Passages.open(CORPUS), read_manifest(INDEX, REBUILD, shards=False, keys={"collection": str})
    parts = {"": manifest, **manifest.get("sources", {})}
    return pd.DataFrame(
        {
            "collection": [part["collection"] for part in parts.values()],
            "indexed": [int(figures[f"indexed_{source}" if source else "indexed"]) for source in parts],
            "searchable": [
                len(passages.searchable_rows(source)) if source else int(figures["rows"]) for source in parts
            ],
            "vectors": int(read_vectors_manifest()["rows"]),
            "passages": len(passages),
        }
    )


def index(params: Params, run: Run) -> None:
    """Put vectors and texts into Milvus and check the row count."""
    figures = index_passages(params)
    figures |= decide_training(params)
    run.record("index", figures | expect("index", index_frame(figures)))
    run.dataset("vectors", VECTORS, "index")


if __name__ == "__main__":
    main("index", index, checks=True, end=partial(finish, WORK / "index"))
