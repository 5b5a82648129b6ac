"""Process groups of DVC are ended whole, and only they; what is said of a lock's file, whatever stands in it."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from servers import until

from flows.runtime.flow_runs import end_group, mend_lock, note_group, noted, sweep, working
from tasks.tracking.execution import identity

STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job in the background of a shell is born deaf to it
child = subprocess.Popen(["sleep", "600"])
signal.signal(signal.SIGINT, signal.SIG_IGN)
pathlib.Path("ready").write_text(str(child.pid))
child.wait()
time.sleep(float(sys.argv[1]))
"""


def start(seconds: float) -> tuple["subprocess.Popen[bytes]", dict[str, Any], int]:
    """A leader that waits for its child, as DVC does, and stays on for some seconds after."""
    ready = Path("ready")
    ready.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, "-c", STUBBORN, str(seconds)], start_new_session=True)
    assert until(lambda: ready.exists() and ready.read_text(), pause=0.02)
    return process, identity(process.pid), int(ready.read_text())


@pytest.mark.services
def test_a_group_is_ended_and_what_does_not_listen_is_killed(workplace: Path) -> None:
    for stays, allowed in ((0, 120.0), (600, 0.5)):
        process, leader, child = start(stays)
        asked = time.monotonic()
        end_group(leader, seconds=allowed)
        assert time.monotonic() - asked < 60
        process.wait(timeout=10)
        assert not psutil.pid_exists(child)


@pytest.mark.fault(25)
@pytest.mark.services
def test_a_later_group_of_the_same_number_is_left_alone_and_a_clock_set_forward_makes_no_run_a_dead_one(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, leader, _ = start(600)
    boot, ticks = leader["born"].split()
    for earlier in (f"{boot} {int(ticks) + 1}", f"another-boot {ticks}", ""):
        end_group({**leader, "started": leader["started"] + 3600, "born": earlier}, seconds=1.0)
        assert process.poll() is None
    at_boot = psutil.boot_time()
    with noted("run-1"), monkeypatch.context() as patched:
        note_group("run-1", leader, Path())
        patched.setattr("psutil._pslinux.boot_time", lambda: at_boot + 60)
        assert psutil.Process(process.pid).create_time() > leader["started"] + 50
        assert sweep() == [] and [told["flow_run"] for told in working()] == ["run-1"]
        assert process.poll() is None
    end_group(leader, seconds=0.5)
    process.wait(timeout=10)


def test_an_empty_lock_of_a_killed_dvc_is_removed_and_a_used_one_kept(workplace: Path) -> None:
    lock = Path(".dvc/tmp/rwlock")
    mend_lock()
    lock.parent.mkdir(parents=True)
    lock.write_text("")
    mend_lock()
    assert not lock.exists()
    lock.write_text('{"read": {}}')
    mend_lock()
    assert lock.exists()
