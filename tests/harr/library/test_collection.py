"""A trained retriever over a collection that the application already has, without a project."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pymilvus import DataType
from servers import milvus_lite

import harr
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import IndexMismatch, ParamsError
from harr.io.files import read_json, write_json
from harr.params.index import IndexParams
from harr.services.milvus_client import connect

QUESTIONS = ["Who leads the works?", "Where is the river?", "Which firm was founded first?"]


@pytest.fixture(scope="module")
def uri(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the project's passages under other names of fields; ``turned`` has vectors of nobody."""
    passages = Passages.open(project / "data/corpus")
    rows = passages.searchable_rows()
    vectors_RD = Vectors.open(project / "data/vectors").take(rows)
    with milvus_lite(tmp_path_factory.mktemp("milvus") / "data") as address:
        client = connect(IndexParams(uri=address), address)
        for name, own_RD in (("theirs", vectors_RD), ("turned", np.roll(vectors_RD, 7, axis=1))):
            schema = client.create_schema(auto_id=False)
            schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=200)
            schema.add_field("body", DataType.VARCHAR, max_length=10_000)
            schema.add_field("heading", DataType.VARCHAR, max_length=1_000)
            schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=own_RD.shape[1])
            client.create_collection(name, schema=schema)
            found = zip(passages.take(rows.tolist()), own_RD, strict=True)
            client.insert(name, [{"key": p.id, "body": p.text, "heading": p.title, "embedding": v} for p, v in found])
            client.flush(name)
            indexes = client.prepare_index_params()
            indexes.add_index("embedding", index_type="FLAT", metric_type="COSINE")
            client.create_index(name, indexes)
        client.close()
        yield address


@pytest.fixture(scope="module")
def trained(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained retriever without its term of words, which no collection tells."""
    folder = tmp_path_factory.mktemp("trained") / "retriever"
    shutil.copytree(project / "models/retriever", folder)
    (folder / "sha256sums.txt").unlink(missing_ok=True)
    facts = read_json(folder / "harr.json")
    facts["retriever"]["evidence"] = None
    write_json(folder / "harr.json", facts)
    return folder


def section(uri: str, **more: Any) -> dict[str, Any]:
    fields = {"id_field": "key", "text_field": "body", "title_field": "heading", "vector_field": "embedding"}
    return {"uri": uri, "adopt": {"collection": "theirs", **fields, **more}}


def test_a_collection_alone_gives_what_the_project_gives(project: Path, trained: Path, uri: str) -> None:
    with harr.Retriever.load(trained, index=project) as own, harr.Retriever.load(trained, index=section(uri)) as theirs:
        for retriever in (own, theirs):
            retriever.policy.k = 5
        assert theirs.search(QUESTIONS) == own.search(QUESTIONS)
        asked = [retriever.session("Who leads the works?") for retriever in (own, theirs)]
        for session in asked:
            session.search()
            session.learned("Ada")
            session.picked(session.retriever.search(["Who leads the works?"])[0][:2])  # is not found again
        first, second = (session.search("Where was she born?") for session in asked)
        assert first == second and not {p.id for p in first} & asked[0].excluded


def test_what_does_not_fit_is_refused(project: Path, trained: Path, uri: str) -> None:
    """Among it a retriever that reads the words of the whole corpus, which no collection tells."""
    there = "http://127.0.0.1:1"
    for folder, index, told in (
        (trained, section(uri, collection="turned"), r"^vectors of the adopted .* width 48 and a cosine of -?0\.\d\d"),
        (trained, section(uri, title_field="title"), r"^index\.adopt\.title_field: collection theirs has no field"),
        (project / "models/retriever", section(uri), r"retriever\.evidence reads the words and titles of the whole"),
        (trained, {"uri": there}, r"^index: a mapping names a collection"),
        (trained, {"adopt": {"collection": "theirs"}}, r"^index: .*adopt is for a Milvus server"),
    ):
        with pytest.raises((IndexMismatch, ParamsError), match=told):
            harr.Retriever.load(folder, index=index)
