"""Parquet files for a server's import: what is in them, and the import by a real server where one is installed."""

import io
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.errors import ParamsError, ServiceUnavailable
from harr.index import bulk_import
from harr.index.build import build_index
from harr.index.bulk_import import State, import_passages, write_parquet
from harr.index.collection import Slice
from harr.index.passage_index import PassageIndex
from harr.io.files import read_json
from harr.params.index import IndexParams
from harr.types import Passage

ROWS, WIDTH = 230, 8
ALL = Slice("", "harr_test", np.arange(ROWS), 2 * np.arange(ROWS), {}, "keys.npy")


@pytest.fixture
def passages(tmp_path: Path) -> Passages:
    write_passages([Passage(f"p{i}", f"Town {i} has a river.") for i in range(ROWS)], tmp_path / "corpus")
    return Passages.open(tmp_path / "corpus")


@pytest.fixture
def vectors() -> Vectors:
    drawn = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=-1, keepdims=True)
    return Vectors({"identity": "0123456789abcdef", "rows": ROWS, "width": WIDTH}, [drawn])


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_import, "FILE_BYTES", 100 * 4 * WIDTH)
    monkeypatch.setattr(bulk_import, "POLL_SECONDS", 0.01)


def test_a_file_holds_rows_vectors_and_texts(passages: Passages, vectors: Vectors) -> None:
    sink, rows = io.BytesIO(), np.array([3, 5, 200])
    write_parquet(passages, vectors, ALL, rows, IndexParams(batch_size=2), sink)
    table = pq.read_table(io.BytesIO(sink.getvalue()))
    assert table["key"].to_pylist() == [6, 10, 400]
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), dtype=np.float32), vectors.take(rows))
    assert table["text"].to_pylist() == [passage.content for passage in passages.take([3, 5, 200])]


def test_a_killed_import_waits_for_its_jobs_and_goes_on(passages: Passages, vectors: Vectors, tmp_path: Path) -> None:
    folder = tmp_path / "bulk"
    params = IndexParams(uri="http://127.0.0.1:1", bulk=folder.as_uri(), batch_size=50)
    progress, imported = tmp_path / "progress.json", dict[int, list[int]]()

    def start_job(name: str) -> int:
        if len(imported) == 2 and not progress.with_suffix(".killed").exists():
            progress.with_suffix(".killed").touch()
            raise KeyboardInterrupt
        imported[len(imported)] = pq.read_table(name)["key"].to_pylist()
        return len(imported) - 1

    def run(state: str) -> None:
        import_passages(passages, vectors, ALL, params, progress, start_job, lambda _: (state, ""), lambda _: None)

    with pytest.raises(KeyboardInterrupt):
        run("Started")
    assert read_json(progress)["rows"] == 200 and len(read_json(progress)["jobs"]) == 2
    run("Completed")
    assert [row for rows in imported.values() for row in rows] == ALL.keys.tolist()
    assert not list(folder.iterdir())


def test_a_kill_between_two_jobs_that_end_is_taken_up(passages: Passages, vectors: Vectors, tmp_path: Path) -> None:
    """The file of the first is gone, and nothing on disk says so."""
    params = IndexParams(uri="http://127.0.0.1:1", bulk=(tmp_path / "bulk").as_uri(), full_text=False, batch_size=50)
    progress, started = tmp_path / "progress.json", list[str]()

    def start_job(name: str) -> int:
        started.append(name)
        return len(started) - 1

    def killed(job: int) -> tuple[str, str]:
        if not Path(started[0]).exists():
            raise KeyboardInterrupt
        return ("Started" if job else "Completed"), ""

    def run(state: State) -> None:
        import_passages(passages, vectors, ALL, params, progress, start_job, state, lambda _: None)

    with pytest.raises(KeyboardInterrupt):
        run(killed)
    assert len(started) == 3 and not Path(started[0]).exists()
    run(lambda _: ("Completed", ""))
    assert len(started) == 3 and not list((tmp_path / "bulk").iterdir())


def test_what_goes_wrong_is_told(passages: Passages, vectors: Vectors, tmp_path: Path) -> None:
    params = IndexParams(uri="http://127.0.0.1:1", bulk=(tmp_path / "bulk").as_uri(), full_text=False)
    numbers = count()
    calls = (lambda _: next(numbers), lambda job: ("Completed" if job else "Failed", "no such file"), lambda _: None)
    with pytest.raises(ServiceUnavailable, match=r"did not import .*\(no such file\); index.bulk must be a place"):
        import_passages(passages, vectors, ALL, params, tmp_path / "p.json", *calls)
    import_passages(passages, vectors, ALL, params, tmp_path / "p.json", *calls)  # not the failed job again
    (tmp_path / "file").touch()
    params = params.model_copy(update={"bulk": (tmp_path / "file" / "bulk").as_uri()})
    with pytest.raises(ParamsError, match=r"index\.bulk: .* cannot be written"):
        import_passages(passages, vectors, ALL, params, tmp_path / "q.json", *calls)
    with pytest.raises(ValueError, match="bulk is for a Milvus server"):
        IndexParams(bulk="s3://bucket/folder")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Milvus 2.3 with its storage in a local folder; it has no BM25."""
    from milvus import MilvusServer

    running = MilvusServer()
    running.set_base_dir(str(tmp_path / "milvus"))
    running.start()
    yield f"http://127.0.0.1:{running.listen_port}"
    running.stop()


@pytest.mark.skipif(find_spec("milvus") is None, reason="the package milvus, a real server, is not installed")
def test_a_server_imports_every_row_once(passages: Passages, vectors: Vectors, server: str, tmp_path: Path) -> None:
    params = IndexParams(uri=server, bulk=(tmp_path / "bulk").as_uri(), full_text=False)
    figures = build_index(passages, vectors, params, tmp_path / "out", tmp_path / "work")
    assert figures["inserted"] == ROWS and not list((tmp_path / "bulk").iterdir())
    with PassageIndex.open(tmp_path / "out", params, identity=vectors.identity) as index:
        rows, _ = index.search(vectors.take(np.arange(ROWS)), 1)
    assert rows[:, 0].tolist() == list(range(ROWS))
    again = build_index(passages, vectors, params, tmp_path / "out", tmp_path / "work")
    assert again["inserted"] == 0
