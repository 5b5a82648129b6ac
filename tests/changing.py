"""A changing corpus, its vectors and its index."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.io.files import fingerprint
from harr.params.index import IndexParams
from harr.types import Passage

DENSE = IndexParams(full_text=False, batch_size=10)
BEFORE = [Passage(f"p{i}", f"Town {i} has a river.") for i in range(60)]
AFTER = [Passage("new", "A lake."), *(replace(p, text="Dry.") if p.id == "p7" else p for p in BEFORE if p.id != "p3")]
"""A new passage comes first, which shifts the rows; p3 is gone, and p7 has another text."""


def vector_of(passage: Passage) -> NDArray[np.float32]:
    drawn = np.random.default_rng(int(fingerprint(passage.text), 16)).normal(size=8).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn), dtype=np.float32)


def corpus_of(folder: Path, made: Iterable[Passage], encoder: str = "mini") -> tuple[Passages, Vectors]:
    """Write a corpus and derive its vectors from the texts."""
    made = list(made)
    identity = write_passages(made, folder / "corpus")["identity"]
    vectors = np.stack([vector_of(passage) for passage in made])
    manifest = {"identity": fingerprint([encoder, identity]), "rows": len(made), "width": 8}
    return Passages.open(folder / "corpus"), Vectors(manifest | {"encoder": encoder, "dtype": "float32"}, [vectors])


def stage(
    folder: Path, made: Iterable[Passage], params: IndexParams = DENSE, encoder: str = "mini"
) -> dict[str, float]:
    passages, vectors = corpus_of(folder, made, encoder)
    return build_index(passages, vectors, params, folder / "index", folder / "work")


def nearest(folder: Path, made: Iterable[Passage], sought: Iterable[Passage], params: IndexParams = DENSE) -> list[str]:
    passages, vectors = corpus_of(folder, made)
    with PassageIndex.open(folder / "index", params, identity=vectors.identity) as index:
        rows, scores = index.search(np.stack([vector_of(passage) for passage in sought]), 1)
    found = zip(passages.take(rows[:, 0].tolist()), scores[:, 0], strict=True)
    return [passage.id if score > 0.9999 else "" for passage, score in found]
