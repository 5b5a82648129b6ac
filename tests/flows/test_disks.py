"""Full disks behind a link, disks without locks, and a stage whose DVC was killed: a line each, nothing left behind."""

import errno
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from servers import until

from harr.io.files import publish, write_text
from tasks.runtime import locks
from tasks.runtime.errors import machine_fault

ROOT = Path(__file__).parents[2]


@pytest.mark.fault(4)
def test_a_full_disk_behind_a_link_is_one_line_and_leaves_no_stump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result is copied to another disk, which fills up: shutil reports a list of texts instead of an OSError."""
    old, new = tmp_path / "data/corpus", tmp_path / "work/corpus"
    for folder, text in ((old, "old"), (new, "new")):
        write_text(folder / "a.txt", text)
        write_text(folder / "b.txt", text)

    def copy(source: object, target: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    def rename(self: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(shutil, "copy2", copy)
    monkeypatch.setattr("shutil.copytree", functools.partial(shutil.copytree, copy_function=copy))
    monkeypatch.setattr(Path, "replace", rename)
    monkeypatch.setattr("harr.io.files.write_text", lambda path, text: None)
    with pytest.raises(OSError) as failed:
        publish(new, old)
    assert machine_fault(failed.value).startswith(f"{tmp_path}/data/.corpus.new.tmp: No space left on device; ")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["corpus"]
    assert (old / "a.txt").read_text() == "old"


@pytest.mark.fault(4, 31)
@pytest.mark.parametrize(
    ("number", "call", "message"),
    [
        (errno.ENOLCK, "fcntl.flock", "put the project on a local disk"),
        (errno.EOPNOTSUPP, "fcntl.flock", "put the project on a local disk"),
        (errno.ENOSPC, "os.write", ".harr/locks/train: No space left on device; "),
    ],
)
def test_a_folder_without_locks_or_room_is_one_line_that_names_it(
    number: int, call: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.harr` may be on a disk of its own; the system does not say which file could not be written."""
    monkeypatch.chdir(tmp_path)

    def fail(*given: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(call, fail)
    with pytest.raises(OSError) as failed, locks.lock_stage("train"):
        pass
    monkeypatch.undo()
    assert message in machine_fault(failed.value)


FOLLOWED = """
import time
from tasks.runtime import signals
from tasks.runtime.command import run_command
from harr.io.progress import stoppable

def body():
    signals.follow()
    for _ in stoppable(range(600)):
        print("begun", flush=True)
        time.sleep(0.5)
        print("ended", flush=True)

run_command(body)
"""


@pytest.mark.fault(33)
@pytest.mark.services
def test_a_stage_whose_dvc_is_killed_finishes_its_unit_and_ends(tmp_path: Path) -> None:
    """Only DVC is killed; the stage would otherwise run on for hours without anyone recording its results."""
    (tmp_path / "stage.py").write_text(FOLLOWED)
    (tmp_path / "dvc").write_text(
        "import subprocess, sys\nwith open('log', 'w') as log:\n"
        "    subprocess.run([sys.executable, '-u', 'stage.py'], stdout=log, stderr=log)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DVC_STAGE": "train"}
    dvc = subprocess.Popen([sys.executable, "dvc", "repro"], cwd=tmp_path, env=environment)
    log = tmp_path / "log"
    assert until(lambda: log.exists() and "begun" in log.read_text())
    (stage,) = psutil.Process(dvc.pid).children()
    dvc.terminate()
    dvc.wait(60)
    psutil.wait_procs([stage], timeout=60)
    assert not stage.is_running() or stage.status() == psutil.STATUS_ZOMBIE
    output = log.read_text()  # a thread may write between a line and its line break
    assert "the dvc that started this stage is gone" in output
    assert output.splitlines()[-1].startswith("stopped; finished work is kept")
    assert output.count("begun") == output.count("ended"), "the unit was finished"
