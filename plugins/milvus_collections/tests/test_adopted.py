"""Collections that users have, made as they make them, on real servers: what is searched, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harr_milvus_collections.adopted import adopt_collection
from pymilvus import DataType

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.errors import IndexMismatch, ParamsError
from harr.index.corpus import open_index
from harr.index.recall import check_recall
from harr.params.index import IndexParams
from harr.services.milvus_client import Connection, connect
from harr.types import Passage

ROWS, WIDTH = 300, 8
DRAWN = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
DRAWN /= np.linalg.norm(DRAWN, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Passages:
    folder = tmp_path_factory.mktemp("corpus")
    write_passages([Passage(f"pä{i}", f"Town {i}.") for i in range(ROWS)], folder)
    return Passages.open(folder)


@pytest.fixture
def vectors() -> Vectors:
    return Vectors({"identity": "0123456789abcdef", "rows": ROWS, "width": WIDTH}, [DRAWN])


@pytest.fixture
def client(uri: str) -> Iterator[Connection]:
    """A server with two collections: one by a key of its own, compared by L2, with fields that are not declared (as
    LangChain makes them); one by the passages' ids, compared by cosine, with a graph."""
    client = connect(IndexParams(uri=uri), uri)
    if not client.has_collection("theirs"):
        rows: list[dict[str, Any]] = [
            {"name": f"pä{i}", "tenant": "ab"[i % 2], "vector": vector} for i, vector in enumerate(DRAWN)
        ]
        keyed = [{"pk": 1_000 + i, **row} for i, row in enumerate(rows)]
        fill(client, "langchain", keyed, ("pk", DataType.INT64), {"index_type": "FLAT", "metric_type": "L2"})
        graph = {"index_type": "HNSW", "metric_type": "COSINE", "params": {"M": 16, "efConstruction": 64}}
        fill(client, "theirs", rows, ("name", DataType.VARCHAR), graph)
    yield client
    client.close()


def fill(
    client: Connection, name: str, rows: list[dict[str, Any]], key: tuple[str, DataType], index: dict[str, Any]
) -> None:
    """Make a collection of rows with undeclared fields besides key and vector."""
    schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
    schema.add_field(*key, is_primary=True, **({"max_length": 100} if key[1] is DataType.VARCHAR else {}))
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=WIDTH)
    client.create_collection(name, schema=schema)
    client.insert(name, rows)
    client.flush(name)
    indexes = client.prepare_index_params()
    indexes.add_index("vector", **index)
    client.create_index(name, indexes)


def section(uri: str, collection: str, **more: Any) -> IndexParams:
    own = {"function": "harr_milvus_collections.adopted:INDEX", "full_text": False}
    return IndexParams.model_validate(
        own | {"uri": uri, "settings": {"collection": collection, "id_field": "name", **more}}
    )


@pytest.mark.parametrize("collection", ["langchain", "theirs"])
def test_a_collection_is_searched_and_not_written(
    uri: str, client: Connection, collection: str, passages: Passages, vectors: Vectors, tmp_path: Path
) -> None:
    params, out = section(uri, collection), tmp_path / "out"
    before = sorted(client.list_collections()), client.describe_collection(collection), client.list_indexes(collection)
    figures = adopt_collection(passages, vectors, params, out, tmp_path / "work")
    assert (figures["rows"], figures["indexed"], figures["inserted"], figures["unknown"]) == (300, 300, 0, 0)
    assert figures["least_cosine"] == pytest.approx(1, abs=1e-5) and not list((tmp_path / "work").iterdir())
    exact = np.argsort(-DRAWN[:50] @ DRAWN.T, axis=1)[:, :20]
    with open_index(passages, vectors, params, out) as index:
        found, scores = index.search(DRAWN[:50], 20)
        np.testing.assert_array_equal(found, exact)
        assert (np.diff(scores, axis=1) <= 1e-6).all() and index.rows == 300
        with pytest.raises(IndexMismatch, match="no BM25"):
            index.search_text(["town"], 1)
    figures = check_recall(passages, vectors, params, out, ["?"] * 50, lambda texts: DRAWN[: len(texts)], 20)
    assert figures["recall_at_pool"] == 1.0
    after = sorted(client.list_collections()), client.describe_collection(collection), client.list_indexes(collection)
    assert before == after
    assert client.query(collection, output_fields=["count(*)"])[0]["count(*)"] == 300


@pytest.mark.usefixtures("client")
def test_a_filter_holds(uri: str, passages: Passages, vectors: Vectors, tmp_path: Path) -> None:
    params, out = section(uri, "langchain", filter='tenant == "b"'), tmp_path / "out"
    assert adopt_collection(passages, vectors, params, out, tmp_path / "work")["rows"] == 150
    odd = np.arange(1, ROWS, 2)
    with open_index(passages, vectors, params, out) as index:
        assert index.list_rows().tolist() == odd.tolist()
        found, _ = index.search(DRAWN[:20], 10)
    np.testing.assert_array_equal(found, odd[np.argsort(-DRAWN[:20] @ DRAWN[odd].T, axis=1)[:, :10]])
    with pytest.raises(IndexMismatch, match=r"for other index\.settings; run `dvc repro -f -s index`"):
        open_index(passages, vectors, section(uri, "langchain"), out)


@pytest.mark.usefixtures("client")
def test_what_does_not_fit_is_one_line(uri: str, passages: Passages, vectors: Vectors, tmp_path: Path) -> None:
    turned = np.roll(DRAWN, 1, axis=1)
    other = Vectors({"identity": "feed", "rows": ROWS, "width": WIDTH}, [turned])
    wide = Vectors({"identity": "feed", "rows": ROWS, "width": 4}, [np.ascontiguousarray(DRAWN[:, :4])])
    write_passages([Passage(f"pä{i}", "Town.") for i in range(ROWS + 9)], tmp_path / "more")
    more = Passages.open(tmp_path / "more")
    for given, corpus, embedded, message in (
        (
            {"collection": "their"},
            passages,
            vectors,
            r"^index\.settings\.collection: \S+ has no collection their; it has",
        ),
        ({"vector_field": "v"}, passages, vectors, r"^index\.settings\.vector_field: .* has no field v; it has name, "),
        ({}, passages, wide, r"^index\.settings\.vector_field: vector of .* theirs has width 8, data/vectors has 4"),
        ({}, passages, other, r"^vectors of collection theirs are not those of data/vectors: smallest cosine -?0\.\d+"),
        ({}, more, vectors, r"^collection theirs at \S+ lacks 9 of the 309 passages of data/corpus"),
        ({"id_field": "tenant"}, passages, vectors, r"has no passage of data/corpus by its tenant; correct"),
    ):
        with pytest.raises((ParamsError, IndexMismatch), match=message) as error:
            params = section(uri, **{"collection": "theirs", **given})
            adopt_collection(corpus, embedded, params, tmp_path / "out", tmp_path / "work")
        assert "\n" not in str(error.value) and not (tmp_path / "out").exists()
