"""What importing flows sets for the libraries, and that a user's own word stands."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("said", "policy"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_threads_that_wait_leave_their_core_to_others(said: dict[str, str], policy: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | said
    command = [sys.executable, "-c", "import flows, os; print(os.environ['OMP_WAIT_POLICY'])"]
    assert subprocess.check_output(command, env=environment, text=True).strip() == policy


def test_a_stage_starts_without_the_client_of_servers() -> None:
    told = "import sys, flows.train, harr.builders.setup; print('openai' in sys.modules, 'torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", told], text=True).split() == ["False", "True"]


@pytest.mark.parametrize(("said", "kept"), [({}, "32 1"), ({"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}, "7 1")])
def test_a_stage_keeps_few_kernels(said: dict[str, str], kept: str) -> None:
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    environment = {key: value for key, value in os.environ.items() if key not in names} | said
    told = (
        "import os, flows.runtime.command as command, flows.runtime.stage as stage\n"
        f"stage.run_flow = lambda flow, checks: print(*map(os.environ.get, {names!r}))\n"
        "command.run_stage(None)"
    )
    assert subprocess.check_output([sys.executable, "-c", told], env=environment, text=True).strip() == kept
