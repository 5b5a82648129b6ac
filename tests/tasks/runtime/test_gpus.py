"""Stages get GPUs, one each, in real processes; a program stands in for nvidia-smi."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harr.errors import ParamsError
from tasks.runtime.gpus import gpu_count, lease_gpus, visible_gpus

LEASE = """
import os, sys
from tasks.runtime.gpus import lease_gpus
with lease_gpus(int(sys.argv[1])):
    print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    sys.stdin.read()
"""
CARDS = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4)
  MIG 3g.20gb     Device  1: (UUID: MIG-cba6)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-a3f1)
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with these cards, and its own home."""
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{CARDS}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def start(machine: None) -> Iterator[Start]:
    """A function that starts processes which lease GPUs, print them, and keep them until they end."""
    with ExitStack() as stack:

        def start(count: int = 1) -> "subprocess.Popen[str]":
            command = [sys.executable, "-c", LEASE, str(count)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = stack.enter_context(subprocess.Popen(command, text=True, **pipes))  # type: ignore[call-overload]
            stack.callback(process.kill)
            return process  # type: ignore[no-any-return]

        yield start


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_every_process_has_a_gpu_of_its_own_until_it_is_killed(start: Start) -> None:
    found = {line(process): process for process in [start(), start(), start()]}
    assert set(found) == {"MIG-c6d4", "MIG-cba6", "GPU-a3f1"}
    late = start(2)
    assert line(late) == "0 of 3 GPUs are free, 2 are wanted; waiting for other stages to end"
    for name in ("MIG-cba6", "GPU-a3f1"):
        found[name].kill()
    assert line(late) == "MIG-cba6,GPU-a3f1"


def test_what_the_environment_says_bounds_the_choice(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, names in (("", []), ("-1", []), ("1", ["1"]), ("2, 3", ["2", "3"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert visible_gpus() == names
    with lease_gpus(1), pytest.raises(ParamsError, match="HARR_GPUS is 2, and this process sees 1 GPUs"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
        with lease_gpus(2):
            pass
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with lease_gpus(1), lease_gpus(1):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1", "where there is no choice, nothing is waited for"


def test_a_machine_without_a_driver_has_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus() == []
    with lease_gpus(1):
        assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize("value", ["0", "-1", "all"])
def test_a_wrong_number_of_gpus_is_one_line(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARR_GPUS", value)
    with pytest.raises(ParamsError, match=rf"^HARR_GPUS is '{value}'; expected the number of GPUs of a stage, from 1"):
        gpu_count()
