"""A trained retriever over a collection that the application already has, without a project."""

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from harr_milvus_collections.adopted import collection
from pymilvus import DataType
from servers import milvus_lite

import harr
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import IndexMismatch, ParamsError
from harr.index.corpus import Corpus
from harr.io.files import read_json, write_json
from harr.params.index import IndexParams
from harr.services.milvus_client import connect

QUESTIONS = ["Who leads the works?", "Where is the river?", "Which firm was founded first?"]
THEIRS = {"collection": "theirs", "id_field": "key", "text_field": "body", "title_field": "heading"}
THEIRS |= {"vector_field": "embedding"}


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
    """The trained retriever without its term of words, which no collection holds."""
    folder = tmp_path_factory.mktemp("trained") / "retriever"
    shutil.copytree(project / "models/retriever", folder)
    (folder / "sha256sums.txt").unlink(missing_ok=True)
    facts = read_json(folder / "harr.json")
    facts["retriever"]["link_features"] = None
    write_json(folder / "harr.json", facts)
    return folder


def alone(uri: str, **more: Any) -> AbstractContextManager[Corpus]:
    """Their collection as the corpus of a trained retriever."""
    return collection(uri, **(THEIRS | more))


def test_a_collection_alone_gives_what_the_project_gives(project: Path, trained: Path, uri: str) -> None:
    with harr.Retriever.load(trained, index=project) as own, harr.Retriever.load(trained, index=alone(uri)) as theirs:
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


def test_a_project_without_a_corpus_has_the_collection_as_one(
    project: Path, trained: Path, uri: str, tmp_path: Path
) -> None:
    own = {"function": "harr_milvus_collections.adopted:INDEX", "settings": THEIRS}
    index = own | {"uri": uri, "full_text": False}
    params = yaml.safe_load((project / "params.yaml").read_text()) | {"index": index, "evaluate": {"arms": ["trained"]}}
    write_json(tmp_path / "params.yaml", params)
    with harr.Retriever.load(trained, index=project) as ours, harr.Retriever.load(trained, index=tmp_path) as theirs:
        assert theirs.search(QUESTIONS) == ours.search(QUESTIONS)


def test_what_does_not_fit_is_refused(project: Path, trained: Path, uri: str) -> None:
    """Among it a retriever that reads the words of the whole corpus, which no collection holds."""
    there = "http://127.0.0.1:1"
    for folder, index, message in (
        (trained, alone(uri, collection="turned"), r"^vectors of the adopted .* width 48 and a cosine of -?0\.\d\d"),
        (trained, alone(uri, title_field="title"), r"^index\.settings\.title_field: collection theirs has no field"),
        (project / "models/retriever", alone(uri), r"links go by the words and titles of the whole corpus"),
        (trained, collection(there), r"^index\.settings: collection is missing"),
        (trained, collection("", collection="theirs"), r"^index\.function: \S+ is for a Milvus server"),
    ):
        with pytest.raises((IndexMismatch, ParamsError), match=message):
            harr.Retriever.load(folder, index=index)
