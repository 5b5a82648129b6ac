"""How a command ends before its work begins, or when its output is not read: one line at most, no traceback."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harr.errors import ParamsError
from tasks.runtime.command import run_command
from tasks.runtime.launch import joins_main_process
from tasks.tracking.execution import execution_id

ROOT = Path(__file__).parents[2]
SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"


@pytest.mark.fault(33)
@pytest.mark.services
@pytest.mark.parametrize(
    ("words", "slow", "number", "code"),
    [
        (["tasks.embed"], "pandas", signal.SIGINT, 130),
        (["tasks.evaluate"], "pandas", signal.SIGTERM, 143),
        (["flows.cli", "doctor"], "psutil", signal.SIGINT, 130),
    ],
)
def test_a_signal_while_a_command_imports_is_a_line(
    words: list[str], slow: str, number: signal.Signals, code: int, workplace: Path
) -> None:
    (workplace / f"{slow}.py").write_text(SLOW)
    # A shell's background job ignores SIGINT from the start.
    start = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", start, sys.executable, "-m", *words]
    environment = {**os.environ, "PYTHONPATH": str(workplace)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout and process.stdout.readline() == "importing\n"
        process.send_signal(number)
        _, message = process.communicate(timeout=30)
    assert (process.returncode, message) == (code, f"stopped by {number.name}\n")


@pytest.mark.fault(33)
@pytest.mark.services
def test_output_that_nobody_takes_is_no_traceback(workplace: Path) -> None:
    shutil.copy(ROOT / "dvc.yaml", workplace)
    reader, writer = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    error = "error: the output cannot be written (No space left on device); write it to another place\n"
    for out, expected in ((writer, (0, "")), (full, (1, error))):
        command = [sys.executable, "-m", "flows.cli", "status"]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        os.close(out)
        assert (done.returncode, done.stderr) == expected


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "abc"), ("RANK", "-1")])
def test_a_variable_that_is_no_number_is_a_line(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as end:
        run_command(lambda: joins_main_process(None))
    error = f"error: {name} is {value!r}; expected a number, as `accelerate launch` sets it; or unset it\n"
    assert (end.value.code, capsys.readouterr().err) == (1, error)


def test_the_name_of_an_execution_can_be_asked_for(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARR_EXECUTION", "it's")
    with pytest.raises(ParamsError, match=r'^HARR_EXECUTION is "it\'s"; expected letters, digits, blanks and any of'):
        execution_id()
    monkeypatch.setenv("HARR_EXECUTION", "Nacht 7: a/b_c-d@e+1.0=x")
    assert execution_id() == "Nacht 7: a/b_c-d@e+1.0=x"
