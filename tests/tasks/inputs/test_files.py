"""`dvc repro` says why a stage is stale: parameters, defaults, and local files named in params.yaml."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows.stages import read_stages
from harr.io import digests
from harr.io.files import read_json
from tasks.inputs.__main__ import FILES, main

ROOT = Path(__file__).parents[3]
DOWNLOAD = Path("data/inputs/download.json")


@pytest.fixture
def project(workplace: Path) -> Path:
    """The first entry of dvc.yaml, and a stage that depends on its output, as download does."""
    Path("mine").mkdir()
    for name in ("a.jsonl", "b.jsonl", ".hidden"):
        Path("mine", name).write_text("{}\n")
    Path("questions.jsonl").write_text("{}\n")
    edited(
        download={"dataset": "jsonl", "passages": ["mine"], "train": ["questions.jsonl"], "test": ["questions.jsonl"]}
    )
    inputs = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]["inputs"]
    inputs["cmd"] = inputs["cmd"].replace("python", sys.executable, 1)
    download = {"cmd": "echo ran >> runs && echo made > out", "deps": [str(DOWNLOAD)], "outs": ["out"]}
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": {"inputs": inputs, "download": download}}, sort_keys=False))
    return workplace


def edited(**sections: object) -> None:
    """Write params.yaml with other sections."""
    Path("params.yaml").write_text(yaml.safe_dump(yaml.safe_load(Path("params.yaml").read_text()) | sections))


def dvc(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "dvc", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def runs() -> int:
    """Return how often stage download ran."""
    return len(Path("runs").read_text().split())


@pytest.mark.services
def test_dvc_repro_and_status_notice_a_changed_an_added_and_a_removed_file(project: Path) -> None:
    dvc("init", "--no-scm", "--quiet")
    dvc("repro")
    assert runs() == 1 and [*read_json(DOWNLOAD)["files"]] == ["mine/a.jsonl", "mine/b.jsonl", "questions.jsonl"]
    assert [stage.state for stage in read_stages(project)] == ["fresh"]
    dvc("repro")
    assert runs() == 1, "nothing changed: the first entry alone runs"
    Path("mine/a.jsonl").write_text("[]\n")
    Path("mine/c.jsonl").write_text("{}\n")
    Path("mine/b.jsonl").unlink()
    (download,) = read_stages(project)
    wanted = ("mine/a.jsonl", "mine/b.jsonl (deleted)", "mine/c.jsonl (new)")
    assert (download.state, download.reasons) == ("changed", wanted)
    assert "download is stale: mine/b.jsonl (deleted)" in dvc("repro")
    assert runs() == 2 and [stage.state for stage in read_stages(project)] == ["fresh"]
    Path("mine/a.jsonl").touch()
    edited(seed=7)
    dvc("repro")
    assert runs() == 2, "what a file holds counts, not when it was written; and download reads no seed"


def test_a_file_is_read_once_and_again_when_it_changed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    digest = digests.sha256
    monkeypatch.setattr(digests, "sha256", lambda path: (read.append(path.name), digest(path))[1])

    def seen() -> dict[str, str]:
        section = yaml.safe_load(Path("params.yaml").read_text())["download"]
        return digests.look(section, project, FILES)

    for path in (Path("mine/a.jsonl"), Path("mine/b.jsonl"), Path("questions.jsonl")):
        os.utime(path, (1, 1))
    first = seen()
    assert sorted(read) == ["a.jsonl", "b.jsonl", "questions.jsonl"] and seen() == first
    assert len(read) == 3
    Path("mine/a.jsonl").write_text("[]\n")
    assert seen() != first and seen() == seen()
    assert read[3:] == ["a.jsonl"] * 3, "a file that was just written may change again within its time"
    os.utime("mine/a.jsonl", (1, 1))
    second = seen()
    Path("mine/a.jsonl").write_text("{ \n")
    os.utime("mine/a.jsonl", (1, 1))
    assert digests.changes(second, seen()) == ["mine/a.jsonl"], "of the same size, with its time set back"
    Path("mine/a.jsonl").write_text("[]\n")
    FILES.write_text("[")
    assert digests.changes(first, seen()) == ["mine/a.jsonl"]
    settings = {"dataset": "function", "function": "mine:load", "settings": {"path": "params.yaml", "n": 3}}
    assert list(digests.look(settings, project, FILES)) == ["params.yaml"]


def test_inputs_are_written_where_they_differ(project: Path) -> None:
    main()
    stamps = {path: path.stat().st_mtime_ns for path in DOWNLOAD.parent.iterdir()}
    assert len(stamps) == 10
    edited(seed=7)
    main()
    written = {path.stem for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp}
    assert written == {"generator", "filter", "train", "arms", "evaluate", "report"}
    whole = DOWNLOAD.read_text()
    DOWNLOAD.write_text("")  # as a power cut may leave it
    main()
    assert DOWNLOAD.read_text() == whole
