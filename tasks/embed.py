"""Stage embed: passages to vectors."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from harr.io.files import finish
from harr.params import Params
from tasks.common import even_sample
from tasks.expectations.process import expect
from tasks.paths import CORPUS, VECTORS, WORK
from tasks.runtime.output import say
from tasks.runtime.stage import main
from tasks.tracking.run import Run


def embed_passages(params: Params, note: Callable[[str], object] = say) -> dict[str, float]:
    """Embed the corpus, resuming unfinished shards; call ``note`` with each line on how the model is used."""
    from harr.builders.encoder import build_encoder
    from harr.corpus.passages import Passages
    from harr.embed.served import ServedEncoder
    from harr.embed.shards import embed_corpus

    encoder = build_encoder(params.encoder)
    for line in encoder.describe_use():
        note(line)
    served = ServedEncoder(encoder, params.encoder.server) if params.encoder.server else None
    return embed_corpus(Passages.open(CORPUS), encoder, params.embed, VECTORS, WORK / "embed", served)


def vectors_frame() -> pd.DataFrame:
    """Return the length and first coordinate of the vectors (if very many, a sample) for the suite ``vectors``."""
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


def embed(params: Params, run: Run) -> None:
    """Turn every passage into a vector; a killed run continues at its last shard."""
    lines: list[str] = []

    def note(line: str) -> None:
        lines.append(line)
        say(line)

    figures = embed_passages(params, note)
    if lines:
        run.tag(encoder_use="; ".join(lines))
    run.record("embed", figures | expect("vectors", vectors_frame()))
    run.dataset("corpus", CORPUS, "corpus")


if __name__ == "__main__":
    main("embed", embed, checks=True, end=partial(finish, WORK / "embed"))
