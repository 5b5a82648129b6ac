"""Files appear whole or not at all."""

import subprocess
from pathlib import Path

import pytest

from harr.errors import DamagedFile
from harr.files import appears_whole, check_shard, check_sums, newest_sound, publish, sha256, write_json


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
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["f", "sha256sums.txt"]
    assert (tmp_path / "out" / "f").read_text() == "2"
    assert not (tmp_path / "new").exists()


def test_hashes_are_those_of_coreutils_and_cover_the_folders_within(tmp_path: Path) -> None:
    (tmp_path / "new/part").mkdir(parents=True)
    (tmp_path / "new/a b").write_text("1")
    (tmp_path / "new/part/c").write_text("2")
    out = tmp_path / "out"
    publish(tmp_path / "new", out)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "sha256sums.txt"], cwd=out, check=True)
    check_sums(out, "dvc repro")
    (out / "part/c").write_text("3")
    check_sums(out, "dvc repro", "a b")
    for folder in (out, out / "part"):
        with pytest.raises(DamagedFile, match=r"part/c is damaged \(sha256 differs .*run `dvc repro`"):
            check_sums(folder, "dvc repro")
    (out / "part/c").unlink()
    with pytest.raises(DamagedFile, match="part/c is missing"):
        check_sums(out, "dvc repro")
    (out / "sha256sums.txt").write_text("nothing")
    with pytest.raises(DamagedFile, match=r"sha256sums\.txt is damaged"):
        check_sums(out, "dvc repro")


def test_a_damaged_checkpoint_is_put_aside_for_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("1", "2"):
        (tmp_path / "draft").mkdir()
        (tmp_path / "draft/f").write_text(name)
        publish(tmp_path / "draft", tmp_path / name)
    folders = [tmp_path / "1", tmp_path / "2"]
    assert newest_sound(folders) == tmp_path / "2"
    (tmp_path / "2/f").write_text("x")
    assert newest_sound(folders) == tmp_path / "1" and not (tmp_path / "2").exists()
    assert "2/f is damaged" in capsys.readouterr().err
    assert newest_sound([]) is None


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
