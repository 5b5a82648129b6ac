"""The Milvus index on real Milvus Lite: exact search, BM25 by hand, identity, locks, kills."""

import fcntl
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from digests import digests
from indexed import stop_inserting, write_vectors
from numpy.typing import NDArray
from pymilvus.exceptions import MilvusException

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.errors import DamagedFile, IndexMismatch, ServiceUnavailable
from harr.index.build import build_index
from harr.index.collection import count
from harr.index.passage_index import PassageIndex
from harr.io.files import SUMS, finish, read_json, write_json
from harr.params.index import IndexParams
from harr.services import milvus_client
from harr.types import Passage

TEXTS = [
    "river river bridge",
    "the river runs through Ashford",
    "Zoë's café is in Ashford",
    "a bridge over snow and ice",
    "snow",
]

KILLED_STAGE = """
import os, signal, sys
from pathlib import Path
from pymilvus import MilvusClient
from harr.corpus.passages import Passages
from harr.params.index import IndexParams
from harr.index.build import build_index
from harr.corpus.vectors import Vectors

insert, batches = MilvusClient.insert, []
def killed_after_three(client, *args, **options):
    insert(client, *args, **options)
    batches.append(1)
    if len(batches) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
MilvusClient.insert = killed_after_three

folder = Path(sys.argv[1])
passages, vectors = Passages.open(folder / "corpus"), Vectors.open(folder / "vectors")
build_index(passages, vectors, IndexParams(batch_size=50), folder / "index", folder / "work")
"""


def unit_vectors(count: int, width: int = 8) -> NDArray[np.float32]:
    vectors = np.random.default_rng(0).standard_normal((count, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 passages, the first five of them TEXTS; every seventh of the others is not searchable."""
    folder = tmp_path_factory.mktemp("index")
    made = [Passage(f"p{i}", TEXTS[i] if i < 5 else f"filler number{i}") for i in range(200)]
    write_passages(made, folder / "corpus", searchable=lambda p: int(p.id[1:]) < 5 or int(p.id[1:]) % 7 != 0)
    vectors = write_vectors(folder / "vectors", unit_vectors(200), "feed")
    passages = Passages.open(folder / "corpus")
    figures = build_index(passages, vectors, IndexParams(batch_size=50), folder / "index", folder / "work")
    # 0, 7, ..., 196 are 29 multiples of seven; 0 is one of the five.
    assert (figures["rows"], figures["corpus_rows"], figures["inserted"]) == (172, 200, 172)
    return folder


def opened(folder: Path, identity: str = "feed", params: IndexParams | None = None) -> PassageIndex:
    return PassageIndex.open(folder / "index", params or IndexParams(), identity=identity)


def test_dense_search_equals_numpy(built: Path) -> None:
    vectors = Vectors.open(built / "vectors").take(np.arange(200))
    searchable = np.array([row < 5 or row % 7 != 0 for row in range(200)])
    queries_QD = unit_vectors(10)[::-1]
    scores = np.where(searchable, queries_QD @ vectors.T, -np.inf)
    expected = np.argsort(-scores.round(6), axis=-1, kind="stable")[:, :30]
    with opened(built) as index:
        assert (index.rows, index.width, index.full_text) == (172, 8, True)
        rows_QN, scores_QN = index.search(queries_QD, 30)
        assert rows_QN.dtype == np.int64
        np.testing.assert_array_equal(rows_QN, expected)
        np.testing.assert_allclose(scores_QN, np.take_along_axis(scores, expected, -1), atol=1e-6)
        rows_QN, scores_QN = index.search(queries_QD[:1], 180)
        assert (rows_QN[0, :172] >= 0).all()
        assert rows_QN[0, 172:].tolist() == [-1] * 8
        assert np.isneginf(scores_QN[0, 172:]).all()
        assert index.search(queries_QD[:0], 3)[0].shape == (0, 3)


def test_full_text_scores_worked_by_hand(built: Path) -> None:
    with opened(built) as index:
        rows_QN, scores_QN = index.search_text(["Which river?", "snow", "SNOW bridge"], 3)
        assert rows_QN.tolist() == [[0, 1, -1], [4, 3, -1], [3, 4, 0]]
        # 172 documents: "river" is in two. After stop words rows 0 and 1 have 3 words each, row 2
        # has "zoë café ashford", row 3 "bridge snow ice", row 4 one, and each filler two.
        average = (3 + 3 + 3 + 3 + 1 + 167 * 2) / 172
        idf = math.log((172 - 2 + 0.5) / (2 + 0.5) + 1)
        norm = 0.9 * (1 - 0.4 + 0.4 * 3 / average)
        assert scores_QN[0, 0] == pytest.approx(idf * 2 * 1.9 / (2 + norm), rel=1e-5)
        assert np.isneginf(scores_QN[0, 2])


def test_full_text_queries_without_words_match_nothing(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(built) as index:
        queries = ["", "   ", "?!", "the of and", "xylophone", "\"'\\ %", "Zoë"]
        rows_QN, _ = index.search_text(queries, 2)
        assert (rows_QN[:6] == -1).all()
        assert rows_QN[6].tolist() == [2, -1]
        assert index.search_text([], 2)[0].shape == (0, 2)
        monkeypatch.setattr(index, "_search", lambda *asked: pytest.fail(f"asked again: {asked}"))
        again_QN, _ = index.search_text(queries[::-1], 4)
        assert again_QN[::-1, :2].tolist() == rows_QN.tolist(), "what was found is kept"
        assert index.search_text(["", "?"], 2)[0].tolist() == [[-1, -1], [-1, -1]]


def test_full_text_of_stems(built: Path, tmp_path: Path) -> None:
    """A stem matches every form of a word; a word whose Porter stem is a stop word ("one": on) is still found."""
    texts = ("The doctor's studies", "A doctor studied one statin", "rain")
    write_passages([Passage(f"p{n}", text) for n, text in enumerate(texts)], tmp_path / "corpus")
    passages, vectors = Passages.open(tmp_path / "corpus"), write_vectors(tmp_path / "vectors", unit_vectors(3), "feed")
    for params in (IndexParams(), IndexParams(stemmer="english")):
        build_index(passages, vectors, params, tmp_path / "index", tmp_path / "work")
        with opened(tmp_path, params=params) as index:
            found = [[row for row in rows if row >= 0] for rows in index.search_text(["study", "one", "the"], 3)[0]]
            assert found == ([[0, 1], [1], []] if params.stemmer else [[], [1], []])


def test_ties_are_settled_by_row(tmp_path: Path) -> None:
    write_passages([Passage(f"p{i}", "same") for i in range(9)], tmp_path / "corpus")
    passages = Passages.open(tmp_path / "corpus")
    vectors = write_vectors(tmp_path / "vectors", np.tile(unit_vectors(1), (9, 1)), "beef")
    build_index(passages, vectors, IndexParams(full_text=False), tmp_path / "index", tmp_path / "work")
    with opened(tmp_path, "beef") as index:
        assert index.search(unit_vectors(2), 4)[0].tolist() == [[0, 1, 2, 3], [0, 1, 2, 3]]
        with pytest.raises(IndexMismatch, match=r"index\.full_text: true"):
            index.search_text(["same"], 2)


@pytest.mark.fault(6, 9)
def test_what_is_not_this_index_is_refused(built: Path, tmp_path: Path) -> None:
    """Identity and width must match, and the manifest must match the live collection."""
    with pytest.raises(IndexMismatch, match=r"was built as feed.*dead.*dvc repro -f -s index"):
        opened(built, "dead")
    with opened(built) as index, pytest.raises(IndexMismatch, match=r"width 4.*width 8"):
        index.search(unit_vectors(2, width=4), 3)
    (tmp_path / "index").mkdir()
    for name in ("milvus.db", "rows.npy"):
        (tmp_path / "index" / name).symlink_to(built / "index" / name)
    manifest = read_json(built / "index/manifest.json")
    for changed, message in (
        ({"identity": "dead"}, "was built as feed, but its manifest says dead"),
        ({"collection": "harr_dead"}, "has no collection harr_dead"),
        ({"rows": 173}, "holds 172 passages, its manifest says 173"),
    ):
        write_json(tmp_path / "index/manifest.json", manifest | changed)
        with pytest.raises(IndexMismatch, match=message):
            opened(tmp_path, str((manifest | changed)["identity"]))
    opened(built).close()


def test_missing_parts_are_named(built: Path, tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match=r"manifest\.json is missing"):
        opened(tmp_path)
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "manifest.json").write_bytes((built / "index" / "manifest.json").read_bytes())
    with pytest.raises(DamagedFile, match=r"milvus\.db is missing"):
        opened(tmp_path)
    assert not (tmp_path / "index" / "milvus.db").exists()


def test_damaged_database_gives_one_line(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built / "index", tmp_path / "index")
    data = next((tmp_path / "index").rglob("*.parquet"))
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(DamagedFile, match=r"\.parquet is damaged \(sha256 differs .*dvc repro -f -s index"):
        opened(tmp_path)
    (tmp_path / "index" / SUMS).unlink()  # as if made by hand: Milvus itself must notice
    with pytest.raises(DamagedFile, match=r"milvus\.db failed .*dvc repro -f -s index") as caught:
        opened(tmp_path)
    assert "\n" not in str(caught.value)


REFUSED = (
    r"^no Milvus at http://127\.0\.0\.1:9 within [01] s \(.*Connection refused\); start the server, or correct index"
)


@pytest.mark.fault(8, 30)
def test_a_server_that_is_not_there_is_named_without_the_password_in_its_address(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """params.yaml refuses a password; a section made by a program must not print one either."""
    monkeypatch.setattr(milvus_client, "FIRST_SECONDS", 0.5)
    params = IndexParams.model_construct(uri="http://root:Geheim7@127.0.0.1:9")
    with pytest.raises(ServiceUnavailable, match=REFUSED) as caught:
        opened(built, params=params)
    assert "\n" not in str(caught.value)
    with (
        pytest.raises(ServiceUnavailable, match=r"^Milvus at http://db: ") as error,
        milvus_client.explain_errors("http://a:Geheim7@db"),
    ):
        raise MilvusException(message="no http://a:Geheim7@db")
    assert "Geheim7" not in f"{caught.value} {error.value} {capsys.readouterr()}"
    assert milvus_client.Connection(MagicMock(), params.uri).where == "http://127.0.0.1:9"


@pytest.mark.fault(10)
def test_reading_changes_no_file_and_locks_nobody_out(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digests(built / "index")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with (built / "index/milvus.db/LOCK").open("rb+") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as another project's process with the same cache holds it
        with opened(built) as one, opened(built) as two:
            same_found(one, two)
            assert len(list(tmp_path.iterdir())) == 2
    assert digests(built / "index") == before
    assert not list(tmp_path.iterdir())


def test_an_open_index_answers_while_a_changed_corpus_takes_its_place(tmp_path: Path) -> None:
    """The new index does not find what the corpus no longer holds."""
    vectors_ND = unit_vectors(40)
    for name, rows in (("old", np.arange(40)), ("new", np.arange(1, 40))):
        write_passages([Passage(f"p{row}", f"text {row}") for row in rows], tmp_path / name / "corpus")
        vectors = write_vectors(tmp_path / name / "vectors", vectors_ND[rows], name)
        passages = Passages.open(tmp_path / name / "corpus")
        if name == "old":
            build_index(passages, vectors, IndexParams(), tmp_path / "index", tmp_path / "work")
    with opened(tmp_path, "old") as before:
        build_index(passages, vectors, IndexParams(), tmp_path / "index", tmp_path / "work")
        assert before.search(vectors_ND[:2], 1)[0].tolist() == [[0], [1]]
    with opened(tmp_path, "new") as after:
        rows_QN, scores_QN = after.search(vectors_ND[:2], 1)
        assert rows_QN[1, 0] == 0 and scores_QN[0, 0] < 0.9 < scores_QN[1, 0]


AS_A_USER = """
import sys
from pathlib import Path
import numpy as np
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.params.index import IndexParams

folder, params = Path(sys.argv[1]), IndexParams(full_text=False)
found = []
for name in ("old", "new"):
    passages, vectors = Passages.open(folder / name / "corpus"), Vectors.open(folder / name / "vectors")
    if name == "new":
        found.append(build_index(passages, vectors, params, folder / "index", folder / "work")["inserted"])
    with PassageIndex.open(folder / "index", params, identity=vectors.identity) as index:
        found.append(index.search(vectors.take(np.array([7])), 1)[0].item())
print(found)
"""


@pytest.mark.services
@pytest.mark.parametrize("link", ["copy", "hardlink", "symlink"])
def test_an_index_that_dvc_made_of_links_is_read_and_replaced_without_rights_over_its_files(
    tmp_path: Path, link: str
) -> None:
    for name, size in (("old", 40), ("new", 41)):
        write_passages([Passage(f"p{i}", f"text {i}") for i in range(size)], tmp_path / name / "corpus")
        vectors = write_vectors(tmp_path / name / "vectors", unit_vectors(size), name)
        write_json(tmp_path / name / "vectors/manifest.json", vectors.manifest | {"encoder": "e", "dtype": "float32"})
    old = Passages.open(tmp_path / "old/corpus"), Vectors.open(tmp_path / "old/vectors")
    build_index(*old, IndexParams(full_text=False), tmp_path / "index", tmp_path / "work")
    for words in ("init -q --no-scm", f"config cache.type {link}", "add -q index"):
        subprocess.run([sys.executable, "-m", "dvc", *words.split()], cwd=tmp_path, check=True)
    parquet = next((tmp_path / "index").rglob("*.parquet"))
    assert parquet.is_symlink() == (link == "symlink")
    user = [] if os.getuid() else ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if user and not shutil.which(user[0]):
        pytest.skip("root may write everything, and setpriv is not installed")
    done = subprocess.run(
        [*user, sys.executable, "-c", AS_A_USER, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.endswith("[7, 41, 7]\n"), done.stderr


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (PermissionError(13, "Permission denied", "milvus.db/LOCK"), PermissionError, "Permission denied"),
        (ValueError("manifest"), DamagedFile, r"cannot be opened \(manifest\); run `dvc repro -f -s index`"),
        (None, ServiceUnavailable, r"can be opened, but Milvus Lite does not answer in this process \(no channel\)"),
    ],
)
def test_a_folder_that_does_not_open_is_not_called_locked_or_damaged_unless_it_is(
    fault: Exception | None, kind: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MilvusException(message="no channel")

    monkeypatch.setattr(milvus_client, "MilvusClient", refuse)
    monkeypatch.setattr("milvus_lite.db.MilvusLite", MagicMock(side_effect=fault))
    with pytest.raises(kind, match=said):
        milvus_client.connect(IndexParams(), str(tmp_path / "milvus.db"))


def test_an_address_has_what_a_folder_has_for_several_readers(built: Path, lite_uri: str, tmp_path: Path) -> None:
    params, out = IndexParams(uri=lite_uri, batch_size=50), tmp_path / "index"
    passages, vectors = Passages.open(built / "corpus"), Vectors.open(built / "vectors")
    assert build_index(passages, vectors, params, out, tmp_path / "work")["inserted"] == 172
    assert build_index(passages, vectors, params, out, tmp_path / "work")["inserted"] == 0  # a complete index stays
    assert not (out / "milvus.db").exists()
    with opened(built) as lite, opened(tmp_path, params=params) as one, opened(tmp_path, params=params) as other:
        for index in (one, other):
            same_found(index, lite)


def same_found(index: PassageIndex, expected: PassageIndex) -> None:
    queries_QD, texts = unit_vectors(20), ["river", "snow bridge", "number42"]
    both = [(index.search(queries_QD, 30), expected.search(queries_QD, 30))]
    both += [(index.search_text(texts, 5), expected.search_text(texts, 5))] if index.full_text else []
    for found, wanted in both:
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_allclose(found[1], wanted[1], atol=1e-5)


@pytest.mark.fault(1)
@pytest.mark.parametrize(
    ("full_text", "killed", "resumed"),
    [(False, False, True), (True, False, False), pytest.param(True, True, True, marks=pytest.mark.services)],
)
def test_a_stopped_build_is_taken_up(
    *,
    built: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    full_text: bool,
    killed: bool,
    resumed: bool,
) -> None:
    """With full text only after a kill: an orderly end writes rows to disk, and words would be counted in two parts."""
    for name in ("corpus", "vectors"):
        (tmp_path / name).symlink_to(built / name)
    params = IndexParams(batch_size=50, full_text=full_text)
    if killed:
        done = subprocess.run([sys.executable, "-c", KILLED_STAGE, str(tmp_path)], env=os.environ, capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    else:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_inserting(patch, 3)
            build_of(tmp_path, params)
    assert not (tmp_path / "index").exists()
    capsys.readouterr()
    # Three batches were inserted, but the third was not noted.
    assert build_of(tmp_path, params)["inserted"] == (72 if resumed else 172)
    assert ("resuming index at passage 100/172 (58.1 %)" in capsys.readouterr().out) == resumed
    with opened(built) as expected, opened(tmp_path, params=params) as index:
        same_found(index, expected)


def build_of(folder: Path, params: IndexParams) -> dict[str, float]:
    passages, vectors = Passages.open(folder / "corpus"), Vectors.open(folder / "vectors")
    return build_index(passages, vectors, params, folder / "index", folder / "work")


def test_a_build_that_was_killed_after_it_had_published_is_not_done_again(built: Path, tmp_path: Path) -> None:
    passages, vectors = Passages.open(built / "corpus"), Vectors.open(built / "vectors")
    out, work = tmp_path / "index", tmp_path / "work"
    figures = [build_index(passages, vectors, IndexParams(), out, work)["inserted"] for _ in range(2)]
    with opened(tmp_path) as index:
        assert index.search_text(["snow"], 1)[0].tolist() == [[4]]
    finish(work)
    assert not list(work.iterdir())
    figures.append(build_index(passages, vectors, IndexParams(), out, work)["inserted"])
    assert figures == [172, 0, 172]


@pytest.mark.fault(9)
def test_searches_and_counts_are_strongly_consistent() -> None:
    """Otherwise a server may miss the last insert; Milvus Lite cannot show that, and a server not reliably."""
    client = MagicMock()
    client.query.return_value = [{"count(*)": 9}]
    manifest = {"collection": "harr_x", "rows": 9, "width": 2, "full_text": True, "search": {"kind": "flat"}}
    index = PassageIndex(milvus_client.Connection(client, "http://127.0.0.1:9"), "", manifest, MagicMock())
    index.search(np.ones((1, 2), dtype=np.float32), 3)
    index.search_text(["snow"], 3)
    assert count(client, "harr_x", 9) == 9
    asked = [*client.search.call_args_list, *client.query.call_args_list]
    assert [call.kwargs["consistency_level"] for call in asked] == ["Strong"] * 3


@pytest.mark.fault(8)
def test_where_somebody_waits_a_server_that_is_away_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    away = MagicMock()
    away.search.side_effect = away.load_collection.side_effect = MilvusException(2, "connection refused")
    manifest = {"collection": "harr_x", "rows": 9, "width": 2, "full_text": False, "search": {"kind": "flat"}}
    connection = milvus_client.Connection(away, "http://127.0.0.1:9")
    index = PassageIndex(connection, "http://127.0.0.1:9", manifest, MagicMock())
    index.connection.patience = 0.05
    with pytest.raises(ServiceUnavailable, match=r"did not answer for 0 s \(connection refused\)"):
        index.search(np.ones((1, 2), dtype=np.float32), 3)
    assert away.search.call_args.kwargs["timeout"] == 0.05
