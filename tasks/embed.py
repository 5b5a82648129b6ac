"""Stage embed: passages to vectors."""

from pathlib import Path

import numpy as np
import pandas as pd
from prefect import task

from harr.params import Params
from tasks.common import GPU_TASK, TASK, even_sample
from tasks.download import CORPUS

VECTORS, WORK = Path("data/vectors"), Path("work/embed")


@task(**GPU_TASK)
def embed_passages(params: Params) -> dict[str, float]:
    """Embed the corpus; unfinished shards are taken up again."""
    from harr.build import build_encoder, build_served_encoder
    from harr.corpus.store import Passages
    from harr.retrieval.embed import embed_corpus

    encoder = build_encoder(params)
    served = build_served_encoder(params, encoder)
    return embed_corpus(Passages.open(CORPUS), encoder, params.embed, VECTORS, WORK, served)


@task(**TASK)
def vectors_frame() -> pd.DataFrame:
    """Length and first coordinate of the vectors (an even sample of very many) for the suite ``vectors``."""
    from harr.retrieval.vectors import Vectors

    vectors = Vectors.open(VECTORS)
    rows = even_sample(vectors.rows)
    parts = [vectors.take(rows[i : i + 10_000]) for i in range(0, len(rows), 10_000)]
    return pd.DataFrame(
        {
            "row": rows,
            "norm": np.concatenate([np.linalg.norm(part, axis=-1) for part in parts]),
            "first": np.concatenate([part[:, 0] for part in parts]),
        }
    )
