"""Vectors by row number from several shards."""

import os
from pathlib import Path

import numpy as np
import pytest

from harr.corpus.vectors import Vectors
from harr.errors import DamagedFile
from harr.io import files
from harr.io.files import publish, sha256, write_json


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rows 0..6 in shards of 3, 3 and 1; row i is [i, -i]."""
    shards = []
    for number, rows in enumerate(([0, 1, 2], [3, 4, 5], [6])):
        path = tmp_path / f"vectors-{number:05d}.npy"
        np.save(path, np.array([[row, -row] for row in rows], dtype=np.float32))
        shards.append({"file": path.name, "rows": len(rows), "sha256": sha256(path)})
    write_json(tmp_path / "manifest.json", {"identity": "abc", "rows": 7, "width": 2, "shards": shards})
    return tmp_path


def test_take_keeps_the_shape_of_the_rows(folder: Path) -> None:
    vectors = Vectors.open(folder)
    assert (vectors.identity, vectors.rows, vectors.width) == ("abc", 7, 2)
    taken = vectors.take(np.array([[6, 0, 3], [2, 2, 5]]))
    assert taken.shape == (2, 3, 2)
    assert taken[..., 0].tolist() == [[6, 0, 3], [2, 2, 5]]
    assert taken[..., 1].tolist() == [[-6, 0, -3], [-2, -2, -5]]
    assert vectors.take(np.array([], dtype=np.int64)).shape == (0, 2)
    assert vectors.take(np.array(4)).tolist() == [4, -4]


def test_blocks_cross_shards_and_rows_outside_the_corpus_are_an_error(folder: Path) -> None:
    blocks = list(Vectors.open(folder).blocks(4))
    assert [start for start, _ in blocks] == [0, 4]
    assert np.concatenate([block for _, block in blocks])[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    for row in (-1, 7):
        with pytest.raises(IndexError, match=r"0\.\.6"):
            Vectors.open(folder).take(np.array([0, row]))


@pytest.mark.fault(3)
def test_damage_is_named(folder: Path) -> None:
    path = folder / "vectors-00001.npy"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DamagedFile, match=r"vectors-00001\.npy is damaged \(sha256 differs.*dvc repro -f -s embed"):
        Vectors.open(folder)
    path.unlink()
    with pytest.raises(DamagedFile, match=r"vectors-00001\.npy is missing"):
        Vectors.open(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(DamagedFile, match=r"manifest\.json"):
        Vectors.open(folder)


@pytest.mark.parametrize("published", [False, True])
def test_shards_are_hashed_once_and_again_where_one_is_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    """A shard with other bytes but the old size and modification time is refused."""
    hashed: list[str] = []
    if published:
        publish(folder, folder.with_name("vectors"))
        folder = folder.with_name("vectors")
    shard, past = folder / "vectors-00001.npy", (0, 0)
    for path in folder.iterdir():
        os.utime(path, ns=past)

    def count(path: Path) -> str:
        hashed.append(path.name)
        return sha256(path)

    monkeypatch.setattr(files, "sha256", count)
    first = Vectors.open(folder)
    assert {"vectors-00000.npy", "vectors-00001.npy", "vectors-00002.npy"} <= set(hashed)
    hashed.clear()
    assert Vectors.open(folder).take(np.arange(7)).tolist() == first.take(np.arange(7)).tolist()
    assert not [name for name in hashed if name.startswith("vectors")]
    assert not [path for path in folder.iterdir() if path.suffix == ".json" and path.name != "manifest.json"]
    shard.write_bytes(shard.read_bytes()[:-1] + b"\1")
    os.utime(shard, ns=past)
    with pytest.raises(DamagedFile, match=r"vectors-00001\.npy is damaged"):
        Vectors.open(folder)


def test_a_shard_that_was_just_written_is_hashed_every_time(folder: Path) -> None:
    """It could be rewritten within the clock's resolution, with the same modification time."""
    Vectors.open(folder)
    assert not folder.with_name(f".{folder.name}.checked.json").exists()
