"""Stages killed at their writes and at random moments end like an undisturbed run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.soak
def test_killed_stages_end_as_if_nothing_had_happened() -> None:
    """All ten stages and a promotion: no difference, stray file, open run or lock remains."""
    command = [sys.executable, "-m", "benchmarks.crash", "--kills", "10", "--seed", "1"]
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    found = re.search(r"all: (\d+) kills, \d+ reruns, 0 with a difference", done.stdout)
    assert found and int(found[1]) >= 10
    assert not re.search(r"^\w+: 0 kills", done.stdout, re.MULTILINE), "every stage must be killed at least once"
