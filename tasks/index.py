"""Stage index: vectors and texts into Milvus."""

from collections.abc import Mapping

import pandas as pd
from prefect import task

from harr.io.files import read_manifest
from harr.params import Params
from tasks.common import TASK
from tasks.embed import vectors_manifest
from tasks.paths import CORPUS, INDEX, MENTIONS, VECTORS, WORDS, WORK


@task(**TASK)
def index_passages(params: Params) -> dict[str, float]:
    """Build the collection, or go on where a killed build stopped; then weigh all words, and find which passage names
    which title."""
    from harr.corpus.passages import Passages
    from harr.corpus.vectors import Vectors
    from harr.index.mentions import build_mentions
    from harr.index.passage_index import build_index
    from harr.index.words import build_words

    passages = Passages.open(CORPUS)
    built = build_index(passages, Vectors.of(passages, VECTORS), params.index, INDEX, WORK / "index")
    built |= build_words(passages, WORDS, WORK / "words")
    return built | build_mentions(passages, MENTIONS, WORK / "mentions")


@task(**TASK)
def index_frame(figures: Mapping[str, float]) -> pd.DataFrame:
    """Return what every collection counts beside corpus and vectors, for the suite ``index``: every passage must be
    found."""
    from harr.corpus.passages import Passages
    from harr.services.milvus_client import REBUILD

    passages, manifest = Passages.open(CORPUS), read_manifest(INDEX, REBUILD, shards=False, keys={"collection": str})
    parts = {"": manifest, **manifest.get("sources", {})}
    return pd.DataFrame(
        {
            "collection": [part["collection"] for part in parts.values()],
            "indexed": [int(figures[f"indexed_{source}" if source else "indexed"]) for source in parts],
            "searchable": [len(passages.searchable_rows(source)) for source in parts],
            "vectors": int(vectors_manifest()["rows"]),
            "passages": len(passages),
        }
    )
