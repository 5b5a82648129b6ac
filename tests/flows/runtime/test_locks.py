"""What is said of a lock's file, whatever stands in it."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.runtime.locks import owner


def test_a_dead_process_of_this_machine_is_not_one_of_another(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    lock, here = tmp_path / "lock", platform.node()
    for pid, host, state in (
        (gone.pid, here, "gone"),
        (os.getpid(), here, "alive"),
        (gone.pid, "elsewhere", "of another machine or container"),
    ):
        lock.write_text(json.dumps({"pid": pid, "host": host, "since": 0}))
        assert owner(lock).startswith(f"pid {pid} on {host} since ") and owner(lock).endswith(f" ({state})")


@pytest.mark.parametrize("told", [{"pid": 1, "host": "here", "since": 1e30}, {"pid": 1}, [1], 7])
def test_a_lock_of_another_form_is_no_error(told: Any, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text(json.dumps(told))
    assert owner(lock) == "a process that has just begun"
