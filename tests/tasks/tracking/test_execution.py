"""Stage processes of one run find the same owner, and every process is distinguished from others."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tasks.tracking.execution import execution_id, is_alive, process_name, recipe_here

RUNNER = """
import subprocess, sys
name = "from tasks.tracking.execution import execution_id; print(execution_id())"
for _ in range(2):
    subprocess.run([sys.executable, "-c", name], check=True)
"""


@pytest.mark.services
def test_stages_of_one_repro_share_an_execution_and_two_repros_do_not(workplace: Path) -> None:
    """Run two stage processes under a program called dvc."""
    program, environment = workplace / "dvc", {**os.environ, "PYTHONPATH": str(workplace)}
    program.write_text(RUNNER)
    command = [sys.executable, str(program), "repro"]
    first, second = (subprocess.check_output(command, env=environment, text=True).split() for _ in range(2))
    assert len(first) == 2 and first[0] == first[1]
    assert second[0] == second[1] != first[0]


@pytest.mark.services
def test_every_experiment_of_a_queue_is_an_execution_of_its_own(workplace: Path) -> None:
    """Run two experiments under one worker, as `dvc queue start` does."""
    worker, experiment = workplace / "worker/dvc", workplace / "dvc"
    worker.parent.mkdir()
    command = [sys.executable, str(experiment), "exp", "exec-run", "--infofile", "x"]
    worker.write_text(f"import subprocess\nfor _ in range(2):\n    subprocess.run({command!r}, check=True)\n")
    experiment.write_text(RUNNER)
    environment = {**os.environ, "PYTHONPATH": str(workplace)}
    names = subprocess.check_output([sys.executable, str(worker), "queue"], env=environment, text=True).split()
    assert names[0] == names[1] != names[2] == names[3]


def test_a_session_of_tmux_called_dvc_owns_no_run(workplace: Path) -> None:
    """A shell stands for tmux: a program that is not Python, and has the word dvc."""
    code = "import os; from tasks.tracking.execution import owner; print(owner().pid == os.getpid())"
    command = ["sh", "-c", f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}; true", "dvc"]
    environment = {**os.environ, "PYTHONPATH": str(workplace)}
    assert subprocess.check_output(command, env=environment, text=True) == "True\n"


def test_without_a_runner_a_process_owns_itself(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert execution_id() == process_name(os.getpid())
    monkeypatch.setenv("HARR_EXECUTION", "night")
    assert execution_id() == "night"


def test_a_clock_that_is_set_changes_no_name_and_a_number_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    name, at_boot, began = process_name(), psutil.boot_time(), psutil.Process().create_time()
    for seconds in (60, -60):
        monkeypatch.setattr("psutil._pslinux.boot_time", lambda set_by=seconds: at_boot + set_by)
        assert abs(psutil.Process().create_time() - began) > 50
        assert process_name() == name and is_alive(name)
    machine, pid, ticks = name.split("-")
    no_process = Path("/proc/sys/kernel/pid_max").read_text().strip()
    for other in ((machine, pid, str(int(ticks) - 1)), ("0" * 8, pid, ticks), (machine, no_process, ticks)):
        assert not is_alive("-".join(other))


def test_a_run_is_named_by_the_recipe_of_its_folder(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recipe_here() == "params.yaml"
    folder = workplace / ".harr/runs/smoke"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    assert recipe_here() == "smoke"
