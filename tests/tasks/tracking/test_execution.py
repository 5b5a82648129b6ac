"""Stage processes of one run find the same owner; dead owners are forgotten."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tasks.tracking.execution import OWNERS, claim, execution_id, is_alive, live_owners, recipe_here

RUNNER = """
import subprocess, sys
claim = "from tasks.tracking.execution import claim; print(claim()['id'])"
for _ in range(2):
    subprocess.run([sys.executable, "-c", claim], check=True)
"""
GONE = int(Path("/proc/sys/kernel/pid_max").read_text())
"""The number of no process."""


@pytest.mark.services
def test_stages_of_one_repro_share_an_execution_and_two_repros_do_not(workplace: Path) -> None:
    """Two stage processes under a program called dvc."""
    program, environment = workplace / "dvc", {**os.environ, "PYTHONPATH": str(workplace)}
    program.write_text(RUNNER)
    command = [sys.executable, str(program), "repro"]
    first, second = (subprocess.check_output(command, env=environment, text=True).split() for _ in range(2))
    assert len(first) == 2 and first[0] == first[1]
    assert second[0] == second[1] != first[0]


def test_without_a_runner_a_process_owns_itself(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert claim()["pid"] == os.getpid()
    assert claim() == claim()
    monkeypatch.setenv("HARR_EXECUTION", "night")
    assert execution_id() == "night"


def test_dead_owners_and_files_that_name_none_are_removed(workplace: Path) -> None:
    """A dead one's number may be used again; the stump of a killed process goes with it."""
    told, started = claim(), psutil.Process().create_time()
    texts = ["[1]", "{}", "7", '{"pid": "x", "started": 1, "id": "a"}', '{"pid": 1, "id": "b"}']
    texts.append(json.dumps({"pid": GONE, "started": time.time(), "id": "gone"}))
    texts.append(json.dumps({"pid": os.getpid(), "started": started - 3600, "id": "an earlier process"}))
    for number, text in enumerate(texts):
        (OWNERS / f"{number}.json").write_text(text)
    stumps = [OWNERS / f".{pid}.json.tmp" for pid in (GONE, os.getpid())]
    for stump in stumps:
        stump.write_text("{")
    assert live_owners() == [told] and [path.stem for path in OWNERS.glob("*.json")] == [str(os.getpid())]
    assert [stump.exists() for stump in stumps] == [False, True]


def test_a_clock_that_is_set_leaves_a_living_owner_alive(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, at_boot = claim(), psutil.boot_time()
    for seconds in (60, -60):
        monkeypatch.setattr("psutil._pslinux.boot_time", lambda set_by=seconds: at_boot + set_by)
        assert abs(psutil.Process().create_time() - told["started"]) > 50
        assert live_owners() == [told] and claim() == told
    boot, ticks = told["born"].split()
    assert not is_alive({**told, "born": f"{boot} {int(ticks) - 1}"})
    assert not is_alive({**told, "born": f"another-boot {ticks}"})


def test_a_run_is_named_by_the_recipe_of_its_folder(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recipe_here() == "params.yaml"
    folder = workplace / ".harr/runs/smoke"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    assert recipe_here() == "smoke"
