"""An index that is brought to a corpus that changed: in Milvus Lite, and on servers behind an alias."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from changing import AFTER, BEFORE, DENSE, corpus_of, nearest, stage, vector_of
from numpy.typing import NDArray

from harr.errors import IndexMismatch, ParamsError
from harr.index.passage_index import PassageIndex
from harr.io.files import read_json
from harr.services.milvus_client import Connection, connect
from harr.types import Passage


def test_only_what_changed_is_inserted_and_what_is_gone_is_not_found(tmp_path: Path) -> None:
    stage(tmp_path, BEFORE)
    figures = stage(tmp_path, AFTER)
    assert (figures["inserted"], figures["deleted"], figures["indexed"]) == (2, 2, 60)
    assert nearest(tmp_path, AFTER, AFTER) == [passage.id for passage in AFTER]
    assert nearest(tmp_path, AFTER, [BEFORE[3], BEFORE[7]]) == ["", ""]
    stage(tmp_path / "anew", AFTER)
    queries, found = np.stack([vector_of(Passage(str(n), f"query {n}")) for n in range(20)]), []
    for folder in (tmp_path, tmp_path / "anew"):
        with PassageIndex.open(folder / "index", DENSE, identity=corpus_of(folder, AFTER)[1].identity) as index:
            found.append(index.search(queries, 60))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    # Rows lie elsewhere in the two; without AVX512 scores differed by 1.2e-7.
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=0, atol=1e-6)
    assert stage(tmp_path, BEFORE)["inserted"] == 2
    assert nearest(tmp_path, BEFORE, BEFORE) == [passage.id for passage in BEFORE]
    assert read_json(tmp_path / "index/manifest.json")["deleted"] == 4


def test_another_encoder_or_kind_and_a_corpus_that_changed_much_are_built_anew(tmp_path: Path) -> None:
    """One thing is another one at a time; with full text all is, so that Milvus Lite ranks as ever."""
    graph = DENSE.model_copy(update={"kind": "hnsw"})
    text = graph.model_copy(update={"full_text": True})
    stage(tmp_path, BEFORE)
    for made, params in (
        (AFTER, DENSE),
        (BEFORE, graph),
        (AFTER, text),
        (BEFORE, text),
        (BEFORE, DENSE),
        (AFTER[:1] + BEFORE[:29], DENSE),
    ):
        assert stage(tmp_path, made, params, "other")["inserted"] == len(made), (len(made), params)


@pytest.mark.parametrize("call", ["alter_collection_properties", "upsert", "delete", "flush"])
def test_a_stopped_change_leaves_the_index_in_place_and_is_repeated(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(tmp_path, BEFORE)
    real = Connection._call

    def stopped(client: Connection, name: str, *values: object, **named: object) -> object:
        found = real(client, name, *values, **named)
        if name == call:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Connection, "_call", stopped)
        stage(tmp_path, AFTER)
    goes_on(tmp_path)


def goes_on(tmp_path: Path) -> None:
    assert nearest(tmp_path, BEFORE, BEFORE) == [passage.id for passage in BEFORE]
    with pytest.raises(IndexMismatch, match="was built as"):
        nearest(tmp_path, AFTER, AFTER)
    assert stage(tmp_path, AFTER)["indexed"] == 60
    assert nearest(tmp_path, AFTER, AFTER) == [passage.id for passage in AFTER]
    assert nearest(tmp_path, AFTER, [BEFORE[3], BEFORE[7]]) == ["", ""]


def test_passages_that_are_alike_in_all_are_kept_apart(tmp_path: Path) -> None:
    twins = [*BEFORE, BEFORE[5]]
    stage(tmp_path, BEFORE)
    figures = stage(tmp_path, twins)
    assert (figures["inserted"], figures["indexed"]) == (1, 61)
    passages, vectors = corpus_of(tmp_path, twins)
    with PassageIndex.open(tmp_path / "index", DENSE, identity=vectors.identity) as index:
        assert index.search(vector_of(BEFORE[5])[None], 2)[0].tolist() == [[5, 60]]
    assert len(set(passages.keys(np.arange(61)).tolist())) == 61


def test_an_alias_names_a_corpus_that_changes_while_it_is_searched(uri: str, tmp_path: Path) -> None:
    """A reader of the corpus before finds what is left of it; what a stopped change left is brought to the end."""
    aliased = DENSE.model_copy(update={"uri": uri, "alias": "docs"})
    assert stage(tmp_path, BEFORE, aliased)["inserted"] == 60
    server, old = connect(aliased, uri), np.stack([vector_of(passage) for passage in BEFORE])
    try:
        name = read_json(tmp_path / "index/manifest.json")["collection"]
        with PassageIndex.open(tmp_path / "index", aliased, identity=identity_of(tmp_path)) as index:
            found, stop = list[NDArray[np.int64]](), threading.Event()

            def search() -> None:
                while not stop.is_set():
                    found.append(index.search(old, 1)[0][:, 0])

            loop = threading.Thread(target=search)
            loop.start()
            figures = stage(tmp_path, AFTER, aliased)
            stop.set()
            loop.join()
            assert (figures["inserted"], figures["deleted"], figures["indexed"]) == (2, 2, 60)
            kept = np.delete(np.arange(60), [3, 7])
            assert found and all((rows[kept] == kept).all() for rows in found)
            assert not set(index.search(old, 60)[0].ravel().tolist()) & {3, 7}, "deleted passages are never found"
        assert read_json(tmp_path / "index/manifest.json")["collection"] == name, "the collection is the same"
        [[hit]] = server.search("docs", [old[0].tolist()], anns_field="vector", limit=1, output_fields=["id"])
        assert hit["entity"]["id"] == "p0"
        server.alter_collection_properties(name, {"harr": marked(server, name)})
        server.delete(name, filter="key >= 0 and key < 4611686018427387904")
        with pytest.raises(IndexMismatch, match="is being brought to"):
            PassageIndex.open(tmp_path / "index", aliased, identity=identity_of(tmp_path))
        assert 0 < stage(tmp_path, AFTER, aliased)["inserted"] < 60
        assert nearest(tmp_path, AFTER, AFTER, aliased) == [passage.id for passage in AFTER]
        assert stage(tmp_path, BEFORE[:10], aliased)["inserted"] == 10, "too much of it changed"
        assert server.describe_collection("docs")["collection_name"] != name and server.has_collection(name)
        server.create_collection("somebodys", dimension=8)
        taken = aliased.model_copy(update={"alias": "somebodys"})
        with pytest.raises(ParamsError, match=r"^index\.alias: somebodys is a collection at .*; choose another name$"):
            stage(tmp_path / "taken", BEFORE, taken)
    finally:
        server.close()


def marked(server: Connection, name: str) -> str:
    """What the property of a collection says while it is changed."""
    content = json.loads(server.describe_collection(name)["properties"]["harr"])
    return json.dumps(content | {"identity": "", "becomes": content["identity"]})


def identity_of(folder: Path) -> str:
    return str(read_json(folder / "index/manifest.json")["identity"])
