"""Download, embed, index and search a fictional corpus of any size: `python -m benchmarks.million 1000000`.

The encoder hashes words, so that files and database are measured. Every stage runs in its own process; its peak
resident memory, its rate, and the recall of the index against exact search are printed. Options: the number of
passages, the width of a vector, and a folder for the files (default: a temporary one, removed afterwards).
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

QUERIES, K = 200, 10
BLOCK = 50_000


class HashEncoder:
    """Duck-typed as ``harr.embed.encoder.Encoder``: the sum of a fixed random vector per word, scaled to length 1."""

    identity, name, max_tokens, passage_prompt, has_weights = "hash", "hash", 1_000_000, "", False

    def __init__(self, width: int) -> None:
        self.width = width
        self._words = np.random.default_rng(0).normal(size=(65_536, width)).astype(np.float32)

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        batch_size: int = 0,
        on_batch: Callable[[int], object] = lambda _: None,
        alone: bool = True,
        lengths: object = None,
    ) -> NDArray[np.float32]:
        """Return the unit vectors of ``texts``."""
        vectors_ND = np.empty((len(texts), self.width), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors_ND[row] = self._words[[zlib.crc32(word.encode()) & 65_535 for word in text.split()]].sum(0)
        vectors_ND /= np.linalg.norm(vectors_ND, axis=-1, keepdims=True)
        on_batch(len(texts))
        return vectors_ND

    def token_counts(self, texts: Sequence[str], *, prompt: str = "") -> NDArray[np.int64]:
        """Return the numbers of words."""
        return np.array([len(text.split()) for text in texts])


def download(passages: int, width: int) -> dict[str, float]:
    """Make a world of so many passages."""
    from harr.datasets.download import download as fetch
    from harr.params.download import FunctionDatasetParams

    settings = {"passages": passages, "train_questions": QUERIES, "test_questions": QUERIES}
    world = FunctionDatasetParams(dataset="function", function="harr_encyclopaedia.dataset:DATASET", settings=settings)
    return fetch(world, Path("corpus"), Path("questions"), Path("work-download"))


def embed(passages: int, width: int) -> dict[str, float]:
    """Run stage embed with the hash encoder."""
    from harr.corpus.passages import Passages
    from harr.embed.shards import embed_corpus
    from harr.params.embed import EmbedParams

    params = EmbedParams(dtype="float32")
    return embed_corpus(Passages.open(Path("corpus")), HashEncoder(width), params, Path("vectors"), Path("work"))  # type: ignore[arg-type]


def index(passages: int, width: int) -> dict[str, float]:
    """Run stage index, vectors only, in Milvus Lite."""
    from harr.corpus.passages import Passages
    from harr.corpus.vectors import Vectors
    from harr.index.build import build_index
    from harr.params.index import IndexParams

    opened = Passages.open(Path("corpus")), Vectors.open(Path("vectors"))
    figures = build_index(*opened, IndexParams(full_text=False), Path("index"), Path("work-index"))
    files = [path.stat().st_size for path in Path("index").rglob("*") if path.is_file()]
    return figures | {"index_mb": sum(files) / 1e6}


def search(passages: int, width: int) -> dict[str, float]:
    """Search the index for questions; return rate and recall@10 against a scan of all vectors."""
    from harr.corpus.passages import read_questions
    from harr.corpus.vectors import Vectors
    from harr.index.passage_index import PassageIndex
    from harr.params.index import IndexParams

    texts = [question.text for question in read_questions(Path("questions/test.jsonl"))]
    queries_QD, vectors = HashEncoder(width).encode(texts), Vectors.open(Path("vectors"))
    with PassageIndex.open(Path("index"), IndexParams(full_text=False), identity=vectors.identity) as opened:
        began = time.monotonic()
        found_QK, _ = opened.search(queries_QD, K)
        seconds = time.monotonic() - began
    best = np.full((len(texts), 0), 0.0, dtype=np.float32)
    for _, block_ND in vectors.blocks(BLOCK):
        scores_QN = queries_QD @ block_ND.T
        best = -np.sort(-np.concatenate([best, scores_QN], axis=1), axis=1)[:, :K]
    scores_QK = (vectors.take(found_QK) * queries_QD[:, None]).sum(-1)
    # By score: passages with the same words have the same vector, and each of them is right.
    recall = float((scores_QK >= best[:, -1:] - 1e-5).mean())
    return {"queries_per_second": len(texts) / seconds, "recall_at_10": recall}


STAGES = {stage.__name__: stage for stage in (download, embed, index, search)}


@contextlib.contextmanager
def place(folder: str) -> Iterator[str]:
    """Yield the folder, or a temporary one."""
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        yield folder
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield temporary


def main() -> None:
    """Run all stages, or one (in the current folder, as a child process)."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.million", description=__doc__)
    parser.add_argument("passages", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--folder", default="")
    parser.add_argument("--stage", choices=STAGES, default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stage:
        began = time.monotonic()
        figures = STAGES[asked.stage](asked.passages, asked.width)
        spent = {"wall_seconds": time.monotonic() - began, "cpu_seconds": time.process_time()}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**figures, **spent, "peak_rss_mb": peak}))
        return
    options = [str(asked.passages), "--width", str(asked.width)]
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    with place(asked.folder) as folder:
        for stage in STAGES:
            command = [sys.executable, "-m", "benchmarks.million", *options, "--stage", stage]
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment, check=True)
            figures = json.loads(done.stdout.splitlines()[-1])
            line = ", ".join(f"{name} {value:,.1f}" for name, value in figures.items() if value)
            print(f"{stage}: {line}", flush=True)


if __name__ == "__main__":
    main()
