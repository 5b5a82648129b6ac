"""The index on Milvus 2.3.5: it finds what a folder of Milvus Lite finds, and survives a server's absence.

What holds for any address, including Milvus Lite's in a thread, is in test_passage_index.py.
"""

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from indexed import stop_inserting, write_vectors
from pymilvus import MilvusClient
from servers import Server

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.errors import ParamsError, ServiceUnavailable
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.params.index import IndexParams
from harr.services import milvus_client
from harr.types import Passage

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("milvus")]
WORDS = "river bridge market snow fruit lane warm cold".split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 passages, their vectors, and an index of them in a folder of Milvus Lite."""
    folder, draw = tmp_path_factory.mktemp("corpus"), np.random.default_rng(0)
    made = [Passage(f"p{i}", " ".join(draw.choice(WORDS, 1 + i % 7))) for i in range(40)]
    write_passages(made, folder / "corpus")
    vectors_ND = draw.standard_normal((40, 8)).astype(np.float32)
    write_vectors(folder / "vectors", vectors_ND / np.linalg.norm(vectors_ND, axis=-1, keepdims=True), "feed")
    build(folder, IndexParams(), folder)
    return folder


@pytest.fixture(scope="module")
def params(milvus_server: tuple[Server, str]) -> Iterator[IndexParams]:
    """Parameters of an index on the server."""
    server, token = milvus_server
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILVUS_TOKEN", token)
        yield IndexParams(uri=f"http://127.0.0.1:{server.port}", full_text=False, batch_size=10)


@pytest.fixture(scope="module")
def built(params: IndexParams, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 40 passages on the server: a build is killed after two of its four batches, and resumed."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_inserting(patch, 2)
        build(corpus, params, folder)
    assert not (folder / "index").exists()
    assert build(corpus, params, folder)["inserted"] == 30  # the second batch had not been noted
    return folder


def build(corpus: Path, params: IndexParams, folder: Path) -> dict[str, float]:
    """Build what the index lacks."""
    passages, vectors = Passages.open(corpus / "corpus"), Vectors.open(corpus / "vectors")
    return build_index(passages, vectors, params, folder / "index", folder / "work")


def opened(folder: Path, params: IndexParams, identity: str = "feed") -> PassageIndex:
    return PassageIndex.open(folder / "index", params, identity=identity)


def client(params: IndexParams) -> MilvusClient:
    return MilvusClient(params.uri, token=os.environ["MILVUS_TOKEN"], dedicated=True)


def test_a_build_that_was_killed_is_whole_and_finds_what_milvus_lite_finds(
    built: Path, params: IndexParams, corpus: Path
) -> None:
    queries_QD = Vectors.open(corpus / "vectors").take(np.arange(40))
    with opened(built, params) as index, opened(corpus, IndexParams()) as lite:
        assert (index.rows, index.width) == (lite.rows, lite.width) == (40, 8)
        for n in (1, 10, 60):
            rows_QN, scores_QN = index.search(queries_QD, n)
            expected_rows_QN, expected_scores_QN = lite.search(queries_QD, n)
            np.testing.assert_array_equal(rows_QN, expected_rows_QN)
            np.testing.assert_allclose(scores_QN, expected_scores_QN, atol=1e-5)
    assert not (built / "index/milvus.db").exists()
    assert build(corpus, params, built)["inserted"] == 0  # a complete collection on a server stays


def test_a_server_without_bm25_is_refused(params: IndexParams, corpus: Path, tmp_path: Path) -> None:
    before = sorted(client(params).list_collections())
    message = r"^index\.full_text: true needs BM25, but the server at \S+ is Milvus v2\.3\.5\S*, and 2\.5 is [^\n]*$"
    with pytest.raises(ParamsError, match=message):
        build(corpus, params.model_copy(update={"full_text": True}), tmp_path)
    assert not list(tmp_path.rglob("*")) and sorted(client(params).list_collections()) == before


@pytest.mark.fault(8)
def test_a_wrong_token_is_one_line(built: Path, params: IndexParams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILVUS_TOKEN", "root:wrong")
    began = time.monotonic()
    with pytest.raises(ServiceUnavailable, match=r"^[^\n]*the token in \$MILVUS_TOKEN$"):
        opened(built, params)
    assert time.monotonic() - began < milvus_client.CONNECT_SECONDS / 2  # it does not wait for a second answer


@pytest.mark.fault(8)
def test_a_server_that_is_killed_is_waited_for_and_loads_the_collection_again(
    built: Path,
    params: IndexParams,
    corpus: Path,
    milvus_server: tuple[Server, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a search, and in the middle of a build: every passage is there once."""
    server, queries_QD = milvus_server[0], np.eye(8, dtype=np.float32)
    vectors_ND = Vectors.open(corpus / "vectors").take(np.arange(40))
    shutil.copytree(corpus / "corpus", tmp_path / "corpus")
    write_vectors(tmp_path / "vectors", vectors_ND, "other")
    with opened(built, params) as index, ThreadPoolExecutor(2) as pool:
        before = index.search(queries_QD, 10)

        def restart() -> Future[Any]:
            while not list(tmp_path.glob("work/*/progress.json")):
                time.sleep(0.001)
            server.stop()
            asked = pool.submit(index.search, queries_QD, 10)
            time.sleep(2)
            server.start()
            return asked

        back = pool.submit(restart)
        one_by_one = params.model_copy(update={"batch_size": 1})
        assert build(tmp_path, one_by_one, tmp_path)["inserted"] == 40
        np.testing.assert_array_equal(back.result().result()[0], before[0])
    stderr = capsys.readouterr().err
    assert "does not answer" in stderr and stderr.count("answers again, after") >= 2
    with opened(tmp_path, one_by_one, "other") as index:
        assert index.search(vectors_ND, 1)[0][:, 0].tolist() == list(range(40))
