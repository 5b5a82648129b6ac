"""Files appear whole or not at all."""

from pathlib import Path

import pytest

from harr.errors import DamagedFile
from harr.files import appears_whole, check_shard, publish, sha256, write_json


def test_a_failed_write_leaves_the_old_file_and_no_stump(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})

    def fail() -> None:
        with appears_whole(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == '{\n  "old": 1\n}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_publish_replaces_a_folder_whole(tmp_path: Path) -> None:
    for name, text in (("new", "2"), ("out", "1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(text)
    (tmp_path / "out" / "stale").write_text("x")
    publish(tmp_path / "new", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["f"]
    assert (tmp_path / "out" / "f").read_text() == "2"
    assert not (tmp_path / "new").exists()


def test_a_shard_is_checked_by_hash(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    path.write_bytes(b"abc")
    entry = {"sha256": sha256(path)}
    check_shard(path, entry, "dvc repro")
    path.write_bytes(b"abd")
    with pytest.raises(DamagedFile, match="damaged"):
        check_shard(path, entry, "dvc repro")
    path.unlink()
    with pytest.raises(DamagedFile, match="missing"):
        check_shard(path, entry, "dvc repro")
