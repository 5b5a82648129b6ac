"""How a command ends before its work begins, and when nobody takes its output: one line at most, no traceback."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("words", "slow"),
    [(["flows.embed"], "prefect"), (["flows.evaluate", "--show"], "prefect"), (["flows.cli", "doctor"], "psutil")],
)
def test_a_signal_while_a_command_imports_is_a_line(
    words: list[str], slow: str, number: signal.Signals, code: int, workplace: Path
) -> None:
    (workplace / f"{slow}.py").write_text(SLOW)
    # A job in the background of a shell is born deaf to SIGINT.
    start = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", start, sys.executable, "-m", *words]
    environment = {**os.environ, "PYTHONPATH": str(workplace)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout and process.stdout.readline() == "importing\n"
        process.send_signal(number)
        _, told = process.communicate(timeout=30)
    assert (process.returncode, told) == (code, f"stopped by {number.name}\n")


def test_output_that_nobody_takes_is_no_traceback(workplace: Path) -> None:
    shutil.copy(ROOT / "dvc.yaml", workplace)
    command = [sys.executable, "-m", "flows.cli", "status"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    expected = "error: the output cannot be written (No space left on device); write it to another place\n"
    assert (done.returncode, done.stderr) == (1, expected)
