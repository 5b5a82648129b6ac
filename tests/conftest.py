"""What every test gets: one thread, its file's group, the tiny encoder, a folder of its own for tasks and flows."""

import ctypes
import gc
import os
import pwd
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from places import furnish
from servers import Server, free_port, wait_for

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Two workers share the cores. The number of threads changes the last bits of float sums, so a test and the process it
# starts need the same number where their results are compared. Set before torch is imported.
os.environ["OMP_NUM_THREADS"] = "1"
# oneDNN and torch cache a kernel for every shape; in a process that meets the shapes of a thousand tests that adds up
# to gigabytes. Stages cache as many (tasks/runtime/command.py).
os.environ |= {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32", "LRU_CACHE_CAPACITY": "1"}
# For pytest-xdist's processes, which start after this: freed memory goes back to the system.
os.environ |= {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "262144"}

PEAK = pytest.StashKey[dict[str, int]]()
KEPT = [0]
"""This process's memory after the last garbage collection, in MiB."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[PEAK] = {}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file in one process: its tests share fixtures. Files that share a server name a group of their own."""
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))


def pytest_collection_finish() -> None:
    """Let the garbage collector skip everything imported and scan only what tests make, in a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.collect()
    # A stage that a test runs in this process freezes all objects when it ends (tasks/runtime/signals.py). Models of
    # earlier tests, still in uncollected cycles, would then never be freed.
    gc.freeze = lambda: None


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def pytest_runtest_logfinish() -> None:
    """Free models that a test left in cycles if memory grew: Python collects by number of objects, not by size."""
    if sys.platform == "linux" and resident_mib() > KEPT[0] + 48:
        for one in vars(sys.modules.get("fastapi.dependencies.models", gc)).values():
            if clear := getattr(one, "cache_clear", None):
                clear()  # it keeps every application's functions, and these keep their service and its models
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        KEPT[0] = resident_mib()


def resident_mib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 2**20


def pytest_sessionfinish(session: pytest.Session) -> None:
    peak = peak_mib()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak"] = peak
    elif not session.config.stash[PEAK]:
        session.config.stash[PEAK]["main"] = peak


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Store the peak that an xdist worker reports when it ends."""
    node.config.stash[PEAK][node.gateway.id] = getattr(node, "workeroutput", {}).get("peak", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    peaks = ", ".join(f"{name} {peak:,} MiB" for name, peak in sorted(config.stash[PEAK].items()))
    terminalreporter.write_line(f"peak memory: {peaks}")


@pytest.fixture(scope="session")
def tiny() -> str:
    """The folder of the tiny encoder (tests/tiny.py)."""
    from tiny import tiny_encoder

    return tiny_encoder()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty but for harr, tasks, flows and the smoke recipe as params.yaml."""
    return furnish(tmp_path, monkeypatch)


@pytest.fixture
def harr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs `harr` with words and variables and returns its exit code and output."""

    from flows.cli import main

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "path", [*sys.path])
            patched.setattr(os, "_exit", sys.exit)
            for name, value in environment.items():
                patched.setenv(name, value)
            with pytest.raises(SystemExit) as end:
                main(*words)
        return subprocess.CompletedProcess(list(words), int(end.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database with empty tables: making one takes longer than most tests."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    with pytest.MonkeyPatch.context() as patched:  # with its files in a folder mlruns, a copy would count as moved
        patched.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", str(path.parent / "files"))
        MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def stored(workplace: Path, empty_store: Path) -> Path:
    """``workplace`` with an MLflow database of its own."""
    shutil.copy(empty_store, workplace / "mlflow.db")
    return workplace


@pytest.fixture
def postgresql(tmp_path: Path) -> Iterator[str]:
    """The address of an empty database in its own cluster on loopback."""
    found = shutil.which("initdb") or next(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), "")
    if not found:
        pytest.skip("no PostgreSQL here: initdb was not found (Debian: apt install postgresql)")
    pytest.importorskip("psycopg2", reason="psycopg2 is missing: pip install '.[postgresql]'")
    # PostgreSQL does not run as root, and only their owner may read pytest's folders
    user = {"user": "postgres"} if os.getuid() == 0 else {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        cluster, port, log = Path(name) / "cluster", free_port(), tmp_path / "postgresql.log"
        if user:
            os.chown(name, pwd.getpwnam("postgres").pw_uid, -1)
        make = [found, "--pgdata", str(cluster), "--auth", "trust", "--username", "harr", "--no-sync"]
        subprocess.run(make, check=True, capture_output=True, cwd="/", **user)
        command = [str(Path(found).with_name("postgres")), "-D", str(cluster), "-h", "127.0.0.1", "-p", str(port)]
        with log.open("wb") as out:
            process = subprocess.Popen([*command, "-k", name, "-F"], stdout=out, stderr=out, cwd="/", **user)
        try:
            wait_for(port, process, log)
            yield f"postgresql+psycopg2://harr@127.0.0.1:{port}/postgres"
        finally:
            process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
            process.wait(timeout=60)


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A bucket in a local stand-in for S3: its address, and the environment that a client needs."""
    pytest.importorskip("moto", reason="moto is missing: pip install '.[dev]'")
    port = free_port()
    server = Server(tmp_path, [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port)
    try:
        server.start()
        endpoint = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/models", method="PUT"), timeout=30).close()
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        yield (
            "s3://models",
            {"MLFLOW_S3_ENDPOINT_URL": endpoint, "AWS_DEFAULT_REGION": "us-east-1"} | dict.fromkeys(names, "stand-in"),
        )
    finally:
        server.stop()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> Path:
    """A folder where stages download, embed and index have run (``stages.world_params``); nobody changes it."""
    from stages import make_world, world_params

    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        furnish(folder, patch)
        make_world(world_params(tiny))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, world: Path) -> Iterator[Path]:
    """A copy of ``world`` as the current folder of all tests in a file."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        furnish(folder, patch)
        patch.syspath_prepend(folder)
        shutil.copytree(world / "data", "data")
        shutil.copy(world / "params.yaml", ".")
        yield folder
