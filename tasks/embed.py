"""Stage embed: passages to vectors."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from prefect import task
from prefect.context import FlowRunContext

from harr.io.files import read_manifest
from harr.params import Params
from harr.params.embed import HereParams
from tasks.common import GPU_TASK, TASK, even_sample
from tasks.paths import CORPUS, VECTORS, WORK


def vectors_manifest() -> dict[str, Any]:
    """Return what is told of the published vectors, compared with its hash; the vectors themselves are not read.

    Raises:
        DamagedFile: it is missing or changed. IndexMismatch: they are of another corpus than the one that is here.
    """
    from harr.corpus import passages, vectors

    manifest = read_manifest(VECTORS, vectors.REBUILD, shards=False, keys={"rows": int, "dtype": str})
    if CORPUS.exists():
        corpus = read_manifest(CORPUS, passages.REBUILD, shards=False)
        vectors.check_corpus(manifest, corpus["identity"], VECTORS)
    return manifest


@task(**GPU_TASK)
def embed_passages(params: Params) -> dict[str, float]:
    """Embed the corpus; unfinished shards are taken up again."""
    from harr.builders.embed import build_served_encoder
    from harr.builders.encoder import build_encoder
    from harr.corpus.passages import Passages
    from harr.embed.shards import embed_corpus

    encoder = build_encoder(params.encoder)
    served = build_served_encoder(params.encoder, encoder)
    spread = None if isinstance(params.runner, HereParams) else partial(_spread, params)
    return embed_corpus(Passages.open(CORPUS), encoder, params.embed, VECTORS, WORK / "embed", served, spread)


@task(**TASK, task_run_name="shard {number}")
def embed_shard(params: Params, corpus: str, before: str, folder: str, number: int) -> dict[str, Any]:
    """Make one shard, wherever the runner of params.yaml calls this."""
    from harr.builders.embed import embed_as_worker

    return embed_as_worker(params.encoder, params.embed, Path(corpus), Path(before), Path(folder), number)


def _spread(params: Params, folder: Path, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Have shards made by the runner; without a Prefect server, which it needs, they are made here."""
    from tasks.workers import spread

    # A worker stands in another folder.
    corpus, before, place = (str(path.resolve()) for path in (CORPUS, VECTORS, folder))
    if isinstance(params.runner, HereParams) or FlowRunContext.get() is None:
        return (embed_shard.fn(params, corpus, before, place, number) for number in numbers)
    fixed = {"params": params, "corpus": corpus, "before": before, "folder": place}
    return spread(params.runner, embed_shard, ({**fixed, "number": number} for number in numbers))


@task(**TASK)
def vectors_frame() -> pd.DataFrame:
    """Return the length and first coordinate of the vectors (an even sample of very many) for the suite ``vectors``."""
    from harr.corpus.passages import Passages
    from harr.corpus.vectors import Vectors

    vectors = Vectors.of(Passages.open(CORPUS), VECTORS)
    rows = even_sample(vectors.rows)
    parts = [vectors.take(rows[i : i + 10_000]) for i in range(0, len(rows), 10_000)]
    return pd.DataFrame(
        {
            "row": rows,
            "norm": np.concatenate([np.linalg.norm(part, axis=-1) for part in parts]),
            "first": np.concatenate([part[:, 0] for part in parts]),
        }
    )
