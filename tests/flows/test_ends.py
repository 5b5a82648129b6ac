"""How a command ends before its work begins, and when nobody takes its output: a line at most, no traceback."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from harr.errors import ParamsError
from tasks.tracking.client import client_of
from tasks.tracking.execution import execution_id

ROOT = Path(__file__).parents[2]
LAUNCHED = "expected a number, as `accelerate launch` sets it; or unset it"
SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("words", "slow"),
    [(["flows.embed"], "prefect"), (["flows.evaluate"], "prefect"), (["flows.cli", "doctor"], "psutil")],
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


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            "WORLD_SIZE",
            "abc",
            "error: WORLD_SIZE is 'abc'; " + LAUNCHED,
        ),
        ("RANK", "-1", "error: RANK is '-1'; " + LAUNCHED),
    ],
)
def test_a_variable_that_is_no_number_is_a_line(name: str, value: str, told: str, workplace: Path) -> None:
    done = ended("flows.merge", variables={name: value})
    assert (done.returncode, done.stderr) == (1, f"{told}\n")


def test_the_name_of_an_execution_can_be_asked_for(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARR_EXECUTION", "it's")
    with pytest.raises(ParamsError, match=r'^HARR_EXECUTION is "it\'s"; expected letters, digits, blanks and any of'):
        execution_id()
    monkeypatch.setenv("HARR_EXECUTION", "Nacht 7: a/b_c-d@e+1.0=x")
    assert execution_id() == "Nacht 7: a/b_c-d@e+1.0=x"


def test_an_address_of_no_store_is_a_line() -> None:
    expected = "foo://x is no address of an MLflow store; set tracking.uri or MLFLOW_TRACKING_URI to http://... or "
    with pytest.raises(ParamsError) as caught:
        client_of("foo://me:secret@x")
    assert str(caught.value) == f"{expected}sqlite:///..."


def test_a_current_folder_that_is_gone_is_a_line(tmp_path: Path) -> None:
    start = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = ended("flows.cli", "doctor", start=start, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "error: the current folder is gone; change to the folder of a harr project\n",
    )


def ended(
    *words: str, start: str = "", cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A module of flows, by way of a script where there is one."""
    command = [sys.executable, *(("-c", start) if start else ()), "-m", *words]
    own = {**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})}
    return subprocess.run(command, env=own, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
