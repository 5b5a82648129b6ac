"""Checks of files, each against the damage that a kill or another run leaves."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from flows.doctor.finding import Finding
from flows.doctor.folders import check_index, check_leftovers, temporary_files, truncated, unfinished
from harr.io.files import write_json
from harr.params import Params

ROOT = Path(__file__).parents[3]
PARAMS = Params.load(ROOT / "recipes/smoke.yaml")


def levels(findings: list[Finding]) -> list[str]:
    return [one.level for one in findings]


def indexed(project: Path) -> Path:
    """Manifests that fit and an index file as Milvus Lite writes it."""
    write_json(project / "data/corpus/manifest.json", {"identity": "c", "rows": 3})
    write_json(project / "data/vectors/manifest.json", {"identity": "v", "corpus": "c", "rows": 3, "width": 4})
    write_json(project / "data/index/manifest.json", {"identity": "v", "rows": 3, "full_text": True})
    folder = project / "data/index/milvus.db/collections/a/partitions/_default/indexes"
    folder.mkdir(parents=True)
    with (folder / "data_1_3.vector.flat.idx").open("wb") as handle:
        np.save(handle, np.ones((3, 4), dtype=np.float32))
    (folder / "data_1_3.terms.sparse.idx").write_text('{"k1": 0.9}')
    return folder


def test_an_index_of_other_vectors_or_another_corpus(project: Path) -> None:
    assert check_index(project, PARAMS)[0].found == "none yet"
    indexed(project)
    assert levels(check_index(project, PARAMS)) == ["ok"]
    write_json(project / "data/vectors/manifest.json", {"identity": "w", "corpus": "d"})
    found = check_index(project, PARAMS)
    assert levels(found) == ["fail", "fail"] and "built as v, but data/vectors is w" in found[0].found
    (project / "data/index/manifest.json").write_text("{")
    assert check_index(project, PARAMS)[0].fix == "dvc repro -f -s index"
    shutil.rmtree(project / "data")
    write_json(project / "data/index/manifest.json", {"identity": "v", "rows": 3})
    assert "is missing" in check_index(project, PARAMS)[0].found
    (project / "data/index/milvus.db").touch()
    assert "Milvus Lite 2" in check_index(project, PARAMS)[0].found


def test_index_files_that_a_kill_cut_off(project: Path) -> None:
    folder = indexed(project)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for cut in (0, 5, 60, len(whole) - 1):
            if cut < len(whole):
                path.write_bytes(whole[:cut])
                assert truncated(project / "data/index") == [path], cut
        (found,) = check_index(project, PARAMS)
        assert found.level == "fail" and path.name in found.fix
        path.write_bytes(whole)
    assert truncated(project / "data/index") == []


@pytest.mark.fault(2)
def test_temporary_files_and_unfinished_work(project: Path) -> None:
    assert levels(check_leftovers(project, busy=False)) == ["ok"]
    (project / "work/train/abc").mkdir(parents=True)
    (project / "metrics").mkdir()
    (project / "metrics/.train.json.tmp").write_text("{")
    assert [path.name for path in temporary_files(project)] == [".train.json.tmp"]
    assert levels(check_leftovers(project, busy=True)) == ["ok"]
    (found,) = check_leftovers(project, busy=False)
    assert (found.level, found.fix) == ("warn", "rm metrics/.train.json.tmp")
    assert found.found == "1 left by a kill: metrics/.train.json.tmp"
    assert unfinished(project) == [("work/train", 1, "0 B")]
    (project / "data/.corpus.old.tmp").mkdir(parents=True)  # the only one, until the next run ends
    assert check_leftovers(project, busy=False) == [found]
    (project / "data/corpus").mkdir()
    (found,) = check_leftovers(project, busy=False)
    assert found.fix == "rm -r data/.corpus.old.tmp metrics/.train.json.tmp"
