"""Local files that params.yaml names: a changed, added or removed one runs stage download again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows.doctor.stages import check_stages, read_stages
from flows.files import MEMO, seen
from harr.io import digests
from harr.io.files import read_json
from tasks.paths import FILES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(workplace: Path) -> Path:
    """The look of dvc.yaml, and a stage that reads what it wrote, as download does."""
    Path("mine").mkdir()
    for name in ("a.jsonl", "b.jsonl", ".hidden"):
        Path("mine", name).write_text("{}\n")
    Path("questions.jsonl").write_text("{}\n")
    values = yaml.safe_load(Path("params.yaml").read_text())
    values["download"] = {"dataset": "jsonl", "passages": ["mine", "no/such"]}
    values["download"] |= {"train": ["questions.jsonl"], "test": ["questions.jsonl"]}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    look = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]["files"]
    look["cmd"] = look["cmd"].replace("python", sys.executable, 1)
    download = {"cmd": "echo ran >> runs && cp data/files.json out", "deps": [FILES.as_posix()], "outs": ["out"]}
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": {"files": look, "download": download}}, sort_keys=False))
    return workplace


def dvc(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "dvc", *words], capture_output=True, text=True, check=False)


def runs() -> int:
    """How often stage download ran, after `dvc repro`."""
    done = dvc("repro")
    assert done.returncode == 0, done.stdout + done.stderr
    return len(Path("runs").read_text().split())


@pytest.mark.services
def test_dvc_repro_and_status_notice_a_changed_an_added_and_a_removed_file(project: Path) -> None:
    dvc("init", "--no-scm", "--quiet")
    assert runs() == 1 and list(read_json(FILES)) == ["mine/a.jsonl", "mine/b.jsonl", "questions.jsonl"]
    assert [stage.state for stage in read_stages(project)] == ["fresh", "fresh"]
    assert runs() == 1, "nothing changed: the look alone runs"
    Path("mine/a.jsonl").write_text("[]\n")
    Path("mine/c.jsonl").write_text("{}\n")
    Path("mine/b.jsonl").unlink()
    look, download = read_stages(project)
    assert (look.state, look.reasons) == ("changed", ("mine/a.jsonl", "mine/b.jsonl (deleted)", "mine/c.jsonl (new)"))
    assert (download.state, download.reasons) == ("follows", ("files",))
    assert "not up to date: files, download" in check_stages(project)[0].found
    assert runs() == 2 and [stage.state for stage in read_stages(project)] == ["fresh", "fresh"]
    Path("mine/a.jsonl").touch()
    assert runs() == 2, "what it holds counts, not when it was written"
    told = yaml.safe_load(Path("dvc.yaml").read_text())
    told["stages"]["download"]["params"] = ["seed", "evaluate.seed_s"]
    Path("dvc.yaml").write_text(yaml.safe_dump(told))
    Path("runs").unlink()
    done = dvc("repro")
    assert done.returncode and not Path("runs").exists(), "what DVC would miss hours later is missed at once"
    assert "params.yaml: evaluate.seed_s left out, which dvc.yaml names; write it down" in done.stderr


def test_a_file_is_read_once_and_again_when_it_changed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    digest = digests.sha256
    monkeypatch.setattr(digests, "sha256", lambda path: (read.append(path.name), digest(path))[1])
    for path in (Path("mine/a.jsonl"), Path("mine/b.jsonl"), Path("questions.jsonl")):
        os.utime(path, (1, 1))
    first = seen(project)
    assert sorted(read) == ["a.jsonl", "b.jsonl", "questions.jsonl"] and seen(project) == first
    assert len(read) == 3
    Path("mine/a.jsonl").write_text("[]\n")
    assert seen(project) != first and seen(project) == seen(project)
    assert read[3:] == ["a.jsonl"] * 3, "a file that was just written may change again within its time"
    os.utime("mine/a.jsonl", (1, 1))
    second = seen(project)
    Path("mine/a.jsonl").write_text("{ \n")
    os.utime("mine/a.jsonl", (1, 1))
    assert digests.changes(second, seen(project)) == ["mine/a.jsonl"], "of the same size, with its time set back"
    Path("mine/a.jsonl").write_text("[]\n")
    MEMO.write_text("[")
    assert digests.changes(first, seen(project)) == ["mine/a.jsonl"]
    settings = {"dataset": "function", "function": "mine:load", "settings": {"path": "params.yaml", "n": 3}}
    assert list(digests.look(settings, project, MEMO)) == ["params.yaml"]
