"""Orphans, locks and ports, with real processes and sockets."""

import time
from pathlib import Path

import psutil

from flows.doctor.processes import (
    Process,
    live_executions,
)
from harr.io.files import write_json


def test_whose_execution_lives(tmp_path: Path) -> None:
    here, old = psutil.Process(), time.time() - 60
    owner = {"pid": here.pid, "started": here.create_time(), "id": "mine"}
    write_json(tmp_path / ".harr/owners/1.json", owner)
    write_json(tmp_path / ".harr/owners/2.json", owner | {"started": here.create_time() - 99, "id": "earlier"})
    named = [Process(7, old, "dvc repro"), Process(8, old, "tasks.train", "named")]
    assert live_executions(named, tmp_path) == {"mine", "named"}
