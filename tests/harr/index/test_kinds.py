"""Kinds of index, on Milvus Lite and real servers: what Milvus is asked for, what they find, what is refused."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.errors import DamagedFile, IndexMismatch
from harr.index import kinds
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.index.recall import check_recall, recall_at
from harr.io.files import write_json
from harr.params.index import IndexParams
from harr.types import Passage

ROWS, WIDTH, POOL = 3_000, 16, 30
BREADTH = {"hnsw": 0, "ivf_sq8": 60}
"""Independently drawn vectors like these form no clear cells: 60 of the 69 cells are read."""


def unit(vectors_ND: NDArray[np.float64]) -> NDArray[np.float32]:
    made: NDArray[np.float32] = (vectors_ND / np.linalg.norm(vectors_ND, axis=-1, keepdims=True)).astype(np.float32)
    return made


DRAWN = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
QUERIES = unit(np.random.default_rng(1).normal(size=(100, WIDTH)))


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Passages:
    """Every tenth passage is not searchable."""
    folder = tmp_path_factory.mktemp("corpus")
    made = [Passage(f"p{i}", f"Town {i}.") for i in range(ROWS)]
    write_passages(made, folder, searchable=lambda passage: not passage.id.endswith("0"))
    return Passages.open(folder)


@pytest.fixture
def vectors() -> Vectors:
    return Vectors({"identity": "0123456789abcdef", "rows": ROWS, "width": WIDTH}, [unit(DRAWN)])


def asked(params: IndexParams, passages: Passages, vectors: Vectors, folder: Path) -> dict[str, float]:
    """Try the index with 100 queries in place of questions."""
    texts = [str(number) for number in range(len(QUERIES))]
    return check_recall(
        passages, vectors, params, folder, texts, lambda texts: QUERIES[[int(text) for text in texts]], POOL
    )


def overlap(params: IndexParams, passages: Passages, vectors: Vectors, folder: Path) -> float:
    """Return the recall by a plain count of rows."""
    rows = passages.searchable_rows()
    exact_QN = rows[np.argsort(-QUERIES @ vectors.take(rows).T, axis=1)[:, :POOL]]
    with PassageIndex.open(folder, params, identity=vectors.identity) as index:
        found_QN, scores_QN = index.search(QUERIES, POOL)
    assert (np.diff(scores_QN, axis=1) <= 1e-6).all()
    return float(np.mean([len({*a} & {*b}) / POOL for a, b in zip(found_QN.tolist(), exact_QN.tolist(), strict=True)]))


@pytest.mark.parametrize("kind", ["hnsw", "ivf_sq8"])
def test_a_kind_finds_what_its_recall_says(kind: str, passages: Passages, vectors: Vectors, tmp_path: Path) -> None:
    params, out = IndexParams(kind=kind, breadth=BREADTH[kind], full_text=False), tmp_path / "out"
    work = tmp_path / "work"
    figures = build_index(passages, vectors, params, out, work)
    assert figures["inserted"] == 2_700 and figures["index_memory_mb"] == kinds.memory_bytes(params, 2_700, WIDTH) / 1e6
    recall_figures = asked(params, passages, vectors, out)
    assert recall_figures["recall_at_pool"] >= 0.95 and recall_figures["recall_queries"] == 100
    if kind == "hnsw":
        assert recall_figures["recall_at_pool"] == pytest.approx(overlap(params, passages, vectors, out), abs=1e-3)
    narrow = params.model_copy(update={"breadth": 1 if kind == "ivf_sq8" else 4, "min_recall": 1.0})
    assert build_index(passages, vectors, narrow, out, work)["inserted"] == 0, "another breadth is no other collection"
    with pytest.raises(IndexMismatch) as error:
        asked(narrow, passages, vectors, out)
    assert re.fullmatch(
        rf"index\.kind: {kind} finds \d\d\.\d % of the 30 nearest passages of 100 training questions, "
        r"index\.min_recall asks for 100 %; set a larger index\.breadth, or index\.kind: flat, and run `dvc repro "
        r"index`",
        str(error.value),
    )
    write_json(out / kinds.SEARCH, {"kind": kind, "breadth": 9})
    with pytest.raises(DamagedFile, match=r"search\.json is damaged .*; run `dvc repro -f -s index`"):
        PassageIndex.open(out, params, identity=vectors.identity)


def test_passages_with_one_vector_count_as_one(passages: Passages, tmp_path: Path) -> None:
    """Any of them is right; otherwise a flat index would not reach 1."""
    twins = Vectors({"identity": "feed", "rows": ROWS, "width": WIDTH}, [np.repeat(unit(DRAWN[:30]), 100, axis=0)])
    params = IndexParams(full_text=False)
    build_index(passages, twins, params, tmp_path / "out", tmp_path / "work")
    with PassageIndex.open(tmp_path / "out", params, identity="feed") as index:
        assert recall_at(index, twins, passages.searchable_rows(), QUERIES, POOL) == 1.0
