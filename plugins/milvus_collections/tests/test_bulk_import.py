"""Parquet files for a server's import: what is in them, and the import by a real server."""

from itertools import count
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from harr_milvus_collections import bulk_import
from harr_milvus_collections.bulk_import import State, build_by_import, import_passages

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.errors import ParamsError, ServiceUnavailable
from harr.index.collection import Slice
from harr.index.passage_index import PassageIndex
from harr.io.files import read_json
from harr.params.index import IndexParams
from harr.types import Passage

ROWS, WIDTH = 230, 8
ALL = Slice("", "harr_test", np.arange(ROWS), {})


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


@pytest.mark.parametrize("killed", ["as it starts a job", "as it waits for the jobs"])
def test_a_killed_import_starts_no_job_twice(passages: Passages, vectors: Vectors, tmp_path: Path, killed: str) -> None:
    """In the second case the file of the first job is gone, and nothing on disk says so."""
    params, place = IndexParams(full_text=False, batch_size=50), (tmp_path / "bulk").as_uri()
    progress, imported, names = tmp_path / "progress.json", list[list[int]](), list[str]()
    at_start = killed == "as it starts a job"

    def start_job(name: str) -> int:
        if at_start and len(imported) == 2 and state is waiting:
            raise KeyboardInterrupt
        names.append(name)
        imported.append(pq.read_table(name)["key"].to_pylist())
        return len(imported) - 1

    def waiting(job: int) -> tuple[str, str]:
        if not Path(names[0]).exists():
            raise KeyboardInterrupt
        return ("Started" if job or at_start else "Completed"), ""

    def run() -> None:
        import_passages(passages, vectors, ALL, params, place, progress, start_job, state, lambda _: None)

    state: State = waiting
    with pytest.raises(KeyboardInterrupt):
        run()
    if at_start:
        assert read_json(progress)["rows"] == 200 and len(read_json(progress)["jobs"]) == 2
    else:
        assert len(imported) == 3 and not Path(names[0]).exists()
    state = lambda _: ("Completed", "")  # noqa: E731
    run()
    assert [row for rows in imported for row in rows] == ALL.rows.tolist()
    assert not list((tmp_path / "bulk").iterdir())


def test_what_goes_wrong_is_reported(passages: Passages, vectors: Vectors, tmp_path: Path) -> None:
    params, place = IndexParams(full_text=False), (tmp_path / "bulk").as_uri()
    numbers = count()
    calls = (lambda _: next(numbers), lambda job: ("Completed" if job else "Failed", "no such file"), lambda _: None)
    with pytest.raises(
        ServiceUnavailable, match=r"did not import .*\(no such file\); index.settings.folder must be a place"
    ):
        import_passages(passages, vectors, ALL, params, place, tmp_path / "p.json", *calls)
    import_passages(passages, vectors, ALL, params, place, tmp_path / "p.json", *calls)  # not the failed job again
    (tmp_path / "file").touch()
    place = (tmp_path / "file" / "bulk").as_uri()
    with pytest.raises(ParamsError, match=r"index\.settings\.folder: .* cannot be written"):
        import_passages(passages, vectors, ALL, params, place, tmp_path / "q.json", *calls)


@pytest.mark.parametrize(
    ("uri", "folder", "line"),
    [
        ("", "s3://bucket/folder", r"^index\.function: \S+ is for a Milvus server; set index\.uri$"),
        ("http://127.0.0.1:1", "bucket/folder", r"^index\.settings: folder: .*s3://"),
        ("http://127.0.0.1:1", "s3://me:word@bucket", r"^index\.settings: folder: an address takes no user name"),
    ],
)
def test_a_section_that_names_no_place_is_refused(
    passages: Passages, vectors: Vectors, tmp_path: Path, uri: str, folder: str, line: str
) -> None:
    params = IndexParams(uri=uri, function="harr_milvus_collections.bulk_import:INDEX", settings={"folder": folder})
    with pytest.raises(ParamsError, match=line):
        build_by_import(passages, vectors, params, tmp_path / "out", tmp_path / "work")


@pytest.mark.services
@pytest.mark.xdist_group("milvus")
def test_a_server_imports_every_row_once(passages: Passages, vectors: Vectors, milvus_uri: str, tmp_path: Path) -> None:
    settings = {"folder": (tmp_path / "bulk").as_uri()}
    own = {"function": "harr_milvus_collections.bulk_import:INDEX", "settings": settings}
    params = IndexParams.model_validate(own | {"uri": milvus_uri, "full_text": False})
    figures = build_by_import(passages, vectors, params, tmp_path / "out", tmp_path / "work")
    assert figures["inserted"] == ROWS and not list((tmp_path / "bulk").iterdir())
    with PassageIndex.open(tmp_path / "out", params, identity=vectors.identity) as index:
        rows, _ = index.search(vectors.take(np.arange(ROWS)), 1)
    assert rows[:, 0].tolist() == list(range(ROWS))
    assert build_by_import(passages, vectors, params, tmp_path / "out", tmp_path / "work")["inserted"] == 0
