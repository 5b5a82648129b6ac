"""The state of stages is DVC's own, read from a small project that the real DVC runs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.stages import dvc_status, read_stages
from harr.errors import HarrError, InUse

pytestmark = pytest.mark.services
STAGES = """
stages:
  first:
    cmd: mkdir -p out/deep && printf b > out/deep/b && printf a > out/a && touch first.json
    deps: [code]
    outs: [out]
    metrics: [{first.json: {cache: false}}]
  second:
    cmd: printf x > end
    deps: [out]
    outs: [end]
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stages that `dvc repro` has run."""
    folder = tmp_path_factory.mktemp("ran")
    files = {"dvc.yaml": STAGES, ".dvcignore": "__pycache__\n.cache\n", "code/z.py": "1"}
    for name, text in (files | {"code/a_b.py": "2", "code/a/c.py": "3", "code/__pycache__/y.pyc": ""}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for words in (("init", "--no-scm", "-q"), ("repro", "-q")):
        subprocess.run([sys.executable, "-m", "dvc", *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def place(ran: Path, tmp_path: Path) -> Path:
    shutil.copytree(ran, tmp_path / "place")
    return tmp_path / "place"


def states(place: Path) -> list[str]:
    return [stage.state for stage in read_stages(place)]


def test_after_a_run_all_is_fresh_until_something_is_missing(place: Path) -> None:
    (place / "code/__pycache__/z.pyc").write_text("ignored")
    assert states(place) == ["fresh", "fresh"]
    shutil.rmtree(place / "out")
    assert read_stages(place)[0].reasons == ("out (deleted)",)
    (place / "dvc.lock").unlink()
    assert states(place) == ["never run", "never run"]


@pytest.mark.parametrize(
    ("files", "reasons"),
    [
        ({"code/new.py": "4"}, ("code",)),
        ({"out/a": "c", "first.json": "{}"}, ("out", "first.json")),
    ],
)
def test_a_change_is_named(files: dict[str, str], reasons: tuple[str, ...], place: Path) -> None:
    for path, text in files.items():
        (place / path).write_text(text)
    first, second = read_stages(place)
    assert (first.state, sorted(first.reasons)) == ("changed", sorted(reasons))
    assert second.state == ("changed" if "out/a" in files else "follows")


def test_a_status_that_does_not_come_is_put_down_to_no_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVC waits in the same way for a lock that is taken and on a file system without locks (NFS, Lustre)."""
    monkeypatch.setattr("flows.stages.SECONDS", 0)
    message = (
        "no answer in 0 s: DVC hashes, another command of DVC is at work, or this file system has no locks; ask later"
    )
    with pytest.raises(InUse, match=message):
        dvc_status(tmp_path)


def test_a_folder_without_dvc_or_git(tmp_path: Path) -> None:
    with pytest.raises(HarrError, match="dvc init"):
        read_stages(tmp_path)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "dvc.yaml").write_text("stages: {}")
    with pytest.raises(HarrError, match="is not a git repository; do what DVC says"):
        read_stages(tmp_path)
