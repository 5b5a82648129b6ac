"""``train.vllm: colocate`` with a real vLLM on the CPU (``make vllm``): the engine has the weights that learn."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from vllm_cpu import SET, START, environment

TESTS = Path(__file__).parent
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(2 * START)]


def trained(folder: Path, *, lora: bool, stale: bool = False) -> str:
    """What a run of some steps prints last, in vLLM's environment: its history, or why it ended."""
    told = json.dumps({"lora": lora, "stale": stale})
    packages = sysconfig.get_paths()["purelib"]
    done = subprocess.run(
        [environment() / "bin/python", TESTS / "vllm_colocate.py", folder, packages, told],
        env={**os.environ, **SET, "PYTHONPATH": f"{TESTS.parent}:{TESTS}", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        capture_output=True,
        text=True,
        timeout=START,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return next(line for line in reversed(done.stdout.splitlines()) if line.startswith(("history ", "ended ")))


@pytest.mark.parametrize("lora", [True, False])
def test_what_colocate_samples_has_the_chances_of_what_learns(tmp_path: Path, lora: bool) -> None:
    word, _, rows = trained(tmp_path, lora=lora).partition(" ")
    assert word == "history", rows
    history = json.loads(rows)
    assert len(history) == 4 and max(row["logprob_gap"] for row in history) < 1e-3
    assert all(row["is_ratio_mean"] == pytest.approx(1.0, abs=1e-2) for row in history)


def test_an_engine_that_gets_no_weights_ends_the_run(tmp_path: Path) -> None:
    said = trained(tmp_path, lora=False, stale=True)
    assert said.startswith("ended train.vllm: colocate: log-probabilities of what vLLM wrote differ"), said
