"""The process that owns a pipeline execution: the common ancestor of its stage processes."""

import contextlib
import os
import platform
import re
from itertools import pairwise
from pathlib import Path

import psutil

from harr.errors import ParamsError
from harr.io.files import fingerprint
from tasks.paths import RUNS as RECIPES

PROGRAMS = {"dvc", "harr"}
RUNS = {("harr", "run"), ("flows.cli", "run")}


def owner() -> psutil.Process:
    """Return the outermost ancestor that is dvc or `harr run`; without one, this process.

    A worker of `dvc queue start` runs many experiments, each as `dvc exp exec-run`, which is then the owner.
    """
    here = psutil.Process()
    commands = [(process, _read_command(process)) for process in here.parents()]
    experiments = [process for process, words in commands if "exec-run" in words]
    runners = [process for process, words in commands if _is_runner(words)]
    return (experiments or runners or [here])[-1]


def this_process() -> str:
    """Return this process in words: host and PID."""
    return f"{platform.node()}, pid {os.getpid()}"


def machine() -> str:
    """Return a hash of this boot of the machine and its container, within which a PID names one process."""
    name = platform.node()
    with contextlib.suppress(OSError):  # not Linux, hence no containers either
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        name = f"{boot}\n{os.readlink('/proc/self/ns/pid')}"
    return fingerprint(name)[:8]


def execution_id() -> str:
    """Return the name of this pipeline execution; the environment variable HARR_EXECUTION overrides it.

    Raises:
        ParamsError: the variable contains what an MLflow query cannot.
    """
    name = os.environ.get("HARR_EXECUTION") or process_name(owner().pid)
    if re.search(r"[^\w .:/@+=-]", name):
        raise ParamsError(f"HARR_EXECUTION is {name!r}; expected letters, digits, blanks and any of . : / @ + = _ -")
    return name


def recipe_here() -> str:
    """Return the recipe that runs in this folder: the name of its folder in .harr/runs, or params.yaml."""
    here = Path.cwd()
    return here.name if here.parts[-3:-1] == RECIPES.parts else "params.yaml"


def process_name(pid: int | None = None) -> str:
    """Return a name that identifies a process (without ``pid``, this one): machine, PID and start.

    The start is in clock ticks after boot, which changes of the machine's clock do not affect; on systems without them
    (macOS), in seconds since 1970.

    >>> process_name() == process_name(os.getpid()), is_alive(process_name())
    (True, True)
    """
    process = psutil.Process(pid)
    start = f"{process.create_time():.0f}"
    with contextlib.suppress(FileNotFoundError):
        fields = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
        start = fields[19].decode()  # field 22 of the line, whose first two are cut off
    return f"{machine()}-{process.pid}-{start}"


def pid_of(name: str) -> int:
    """Return the PID in a ``process_name``.

    >>> pid_of(process_name()) == os.getpid()
    True
    """
    return int(name.split("-")[1])


def is_alive(name: str) -> bool:
    """Return whether the process of a ``process_name`` is running on this machine.

    >>> is_alive(f"{machine()}-{os.getpid()}-7"), is_alive("what nobody is called")
    (False, False)
    """
    try:
        pid = pid_of(name)
        return process_name(pid) == name and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, IndexError, ValueError):
        return False


def _read_command(process: psutil.Process) -> list[str]:
    """Return the first words of a process's command, without folders; none if the process has ended."""
    with contextlib.suppress(psutil.Error):
        return [Path(word).name for word in process.cmdline()[:5]]
    return []


def _is_runner(words: list[str]) -> bool:
    if not words or ("python" not in words[0] and words[0] not in PROGRAMS):  # `tmux new -s dvc` runs no stages
        return False
    return "dvc" in words[:4] or not RUNS.isdisjoint(pairwise(words))
