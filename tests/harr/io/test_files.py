"""Files appear whole or not at all."""

import errno
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harr.errors import DamagedFile
from harr.io.files import (
    SUMS,
    appears_whole,
    check_shard,
    check_sums,
    newest_sound,
    publish,
    read_manifest,
    read_state,
    read_state_rows,
    reopen_work,
    sha256,
    write_json,
    write_text,
)


@pytest.mark.fault(2)
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


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another disk."""
    place = Path("/dev/shm")
    if not place.is_dir() or not os.access(place, os.W_OK) or place.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no other disk")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


def made(folder: Path, text: str) -> Path:
    """Make a folder with two files and a subfolder."""
    (folder / "part").mkdir(parents=True, exist_ok=True)
    for name in ("f", "part/g"):
        (folder / name).write_text(text)
    return folder


def whole(folder: Path) -> str:
    """Return the text of a published folder after its hashes are compared."""
    check_sums(folder, "")
    assert {path.name for path in folder.rglob("*")} == {"f", "part", "g", "sha256sums.txt"}
    return (folder / "f").read_text()


def test_a_result_on_another_disk_is_replaced_and_taken_back(tmp_path: Path, elsewhere: Path) -> None:
    data = tmp_path / "data"
    data.symlink_to(elsewhere)
    for text in ("1", "2"):
        publish(made(tmp_path / "work/new", text), data / "corpus")
        assert whole(data / "corpus") == text and os.listdir(elsewhere) == ["corpus"]
        assert os.listdir(tmp_path / "work") == []
    reopen_work(data / "corpus", tmp_path / "work/new")
    assert whole(tmp_path / "work/new") == "2" and os.listdir(tmp_path / "work") == ["new"]


def test_a_link_is_resolved_and_what_is_no_folder_stays(tmp_path: Path) -> None:
    out, target = tmp_path / "data/corpus", tmp_path / "elsewhere/corpus"
    out.parent.mkdir()
    out.symlink_to(target)
    for text in ("1", "2"):
        publish(made(tmp_path / "new", text), out)
        assert out.is_symlink() and whole(out) == text and os.listdir(target.parent) == ["corpus"]
    reopen_work(out, tmp_path / "new")
    assert whole(tmp_path / "new") == "2" and not target.exists()
    out.unlink()
    out.write_text("mine")
    with pytest.raises(NotADirectoryError) as error:
        publish(tmp_path / "new", out)
    assert error.value.filename == str(out) and out.read_text() == "mine" and whole(tmp_path / "new") == "2"


def test_a_result_that_cannot_be_published_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    publish(made(tmp_path / "new", "1"), out)
    rename = os.replace

    def refuse(source: Path, target: Path) -> None:
        if target == out and not out.exists() and source.name == "new":
            raise OSError(errno.EIO, "disk")
        rename(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(Path, "replace", lambda self, target: os.replace(self, target))
    with pytest.raises(OSError, match="disk"):
        publish(made(tmp_path / "new", "2"), out)
    assert whole(out) == "1" and sorted(os.listdir(tmp_path)) == ["new", "out"]


class Killed(BaseException):
    """Raised where the process would be killed."""


DISK = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "open", "shutil.copyfile", "shutil.rmtree"}
LEFT = [0]
"""Number of disk changes still allowed; 0: unlimited."""


def audit(name: str, values: object) -> None:
    if LEFT[0] and name in DISK:
        LEFT[0] = max(1, LEFT[0] - 1)
        if LEFT[0] == 1:
            raise Killed


def killed_before(event: int, body: Callable[[], object]) -> bool:
    """Run ``body`` without its ``event``-th or any later disk change, even in handlers; False: it made fewer."""
    LEFT[0] = event + 1
    try:
        body()
    except Killed:
        return True
    finally:
        LEFT[0] = 0
    return False


@pytest.mark.fault(31)
@pytest.mark.parametrize("other", [False, True])
def test_the_old_result_outlives_a_kill_until_the_new_one_is_there(
    other: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = request.getfixturevalue("elsewhere") if other else tmp_path / "data"
    out, new, event = place / "out", tmp_path / "work/new", 1
    sys.addaudithook(audit)
    (made(new, "1") / "stale").write_text("x")
    publish(new, out)
    publish(made(new, "1"), out)
    while killed_before(event, lambda: publish(made(new, "2"), out)):
        kept = [folder for folder in (out, place / ".out.old.tmp") if folder.exists()]
        assert whole(kept[0]) in ("1", "2"), f"killed before event {event}"
        publish(made(new, "3"), out)
        assert whole(out) == "3" and os.listdir(place) == ["out"] and os.listdir(tmp_path / "work") == []
        publish(made(new, "1"), out)
        event += 1
    assert event > 20 and whole(out) == "2" and os.listdir(place) == ["out"]


def test_hashes_are_those_of_coreutils_and_cover_the_folders_within(tmp_path: Path) -> None:
    (tmp_path / "new/part").mkdir(parents=True)
    (tmp_path / "new/a b").write_text("1")
    (tmp_path / "new/part/c").write_text("2")
    out = tmp_path / "out"
    publish(tmp_path / "new", out)
    listed = {"a b": "1", "part/c": "2"}
    lines = [f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in listed.items()]
    assert (out / "sha256sums.txt").read_text() == "".join(lines)  # the format of `sha256sum --check --strict`
    check_sums(out, "dvc repro")
    (out / "part/c").write_text("3")
    check_sums(out, "dvc repro", "a b")
    for folder in (out, out / "part"):
        with pytest.raises(DamagedFile, match=r"part/c is damaged \(sha256 differs .*run `dvc repro`"):
            check_sums(folder, "dvc repro")
    (out / "part/c").unlink()
    with pytest.raises(DamagedFile, match="part/c is missing"):
        check_sums(out, "dvc repro")
    kept = (out / "sha256sums.txt").read_bytes()
    for damaged in (kept.replace(b"\n", b"\r", 1), b"nothing"):
        (out / "sha256sums.txt").write_bytes(damaged)
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


@pytest.mark.fault(3)
def test_a_list_of_hashes_that_was_emptied_is_damage_and_that_of_an_empty_folder_is_not(tmp_path: Path) -> None:
    for name in ("full", "empty"):
        (tmp_path / "work" / name).mkdir(parents=True)
        if name == "full":
            write_text(tmp_path / "work/full/a", "a")
        publish(tmp_path / "work" / name, tmp_path / name)
        check_sums(tmp_path / name, "dvc repro")
    (tmp_path / "full" / SUMS).write_text("")
    with pytest.raises(DamagedFile, match=r"full/sha256sums\.txt is damaged; run `dvc repro`"):
        check_sums(tmp_path / "full", "dvc repro")


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


DAMAGES = {
    b"": "no JSON",
    b'{"rows": 4': "no JSON",
    b"\xff\xfe\x00": "no JSON",
    b"[" * 100_000: "no JSON",
    b"[1]": "a list, expected an object",
    b"null": "a NoneType, expected an object",
    b"{}": "rows is missing, expected int",
    b'{"rows": "4"}': "rows is a str, expected int",
}


def test_state_that_was_damaged_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for damage, said in DAMAGES.items():
        for place, read in ((path, read_state), (f"{path}:2", read_state_rows)):
            path.write_bytes(damage if read is read_state else b'{"rows": 3}\n' + damage + b"\n")
            if damage or read is read_state:
                with pytest.raises(DamagedFile) as error:
                    read(path, "run it", rows=int)
                assert str(error.value) == f"{place} is damaged ({said}); run it"


def test_state_that_is_sound_missing_or_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_json(path, {"rows": 4, "share": 1})
    assert read_state(path, "", rows=int, share=float) == {"rows": 4, "share": 1}
    path.write_text('{"rows": 4}\n{"rows": 5}\n')
    assert [row["rows"] for row in read_state_rows(path, "", rows=int)] == [4, 5]
    with pytest.raises(DamagedFile, match=r"none is missing; run it"):
        read_state(tmp_path / "none", "run it")
    with pytest.raises(DamagedFile, match=r"cannot be read \(Is a directory\); run it"):
        read_state(tmp_path, "run it")


@pytest.mark.fault(3)
def test_a_manifest_without_hashes_is_checked_by_its_keys(tmp_path: Path) -> None:
    for manifest, said in (
        ([1], "a list, expected an object"),
        ({"shards": []}, "identity is missing"),
        ({"identity": "a"}, "shards is missing"),
        ({"identity": "a", "shards": [1]}, "a shard without file or sha256"),
        ({"identity": "a", "shards": [{"file": "b"}]}, "a shard without file or sha256"),
    ):
        write_json(tmp_path / "manifest.json", manifest)
        with pytest.raises(DamagedFile, match=rf"manifest.json is damaged \({said}.*; run `dvc repro`"):
            read_manifest(tmp_path, "dvc repro", keys={"shards": list})
