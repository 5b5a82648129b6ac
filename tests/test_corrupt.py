"""One changed or missing byte in any artifact is found when it is opened, and named; the long run is a benchmark."""

import subprocess
import sys
from pathlib import Path


def test_every_kind_of_artifact_shows_a_changed_byte() -> None:
    """Some hundred cases over all kinds; and of damaged vectors one shard alone is made again."""
    command = [sys.executable, "-m", "benchmarks.corrupt", "--cases", "330"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "all: 330 of 330 found" in done.stdout
    assert "one damaged shard of vectors: 12 of 48 passages embedded again" in done.stdout
