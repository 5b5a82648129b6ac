"""Everything that runs by itself on one machine, without Docker: `harr up` and `harr down`.

Starts a Prefect server, an MLflow server over mlflow.db, and a Prefect worker for each of the work pools cpu and gpu;
creates the pools and the deployments of prefect.yaml; and starts `harr serve` if the registry has a champion. All of it
listens on loopback only. Milvus Lite needs no server: each stage opens the folder data/index.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from flows import HEARTBEAT
from harr.errors import HarrError, InUse, ServiceUnavailable, one_line
from harr.io.files import write_json
from harr.params import Params
from harr.services.model_registry import CHAMPION, open_registry, resolve
from harr_local.servers import (
    UP,
    Started,
    healthy,
    list_ended,
    listens,
    mlflow_command,
    prefect_command,
    read_started,
)
from tasks.paths import INDEX
from tasks.runtime.gpus import visible_gpus
from tasks.runtime.locks import LOCKS, hold
from tasks.tracking.execution import is_alive, machine, pid_of, process_name

START_SECONDS = 240.0
STOP_SECONDS = 20.0
FREE_SECONDS = 5.0
"""Seconds to wait for the port of a killed server to become free."""
API = {"Prefect": "/api"}
"""Path of a server's health endpoint, if not at the top."""
WORK = {"Prefect": "/runs", "MLflow": "/#/experiments?workflowType=machine_learning"}
"""Path of a server's page with the work; MLflow's first page is about language models."""
WORKER = {"PREFECT_WORKER_QUERY_SECONDS": "5", "PREFECT_WORKER_ENABLE_CANCELLATION": "true", **HEARTBEAT}
"""Workers look for work every 5 s, cancel runs even before they begin, and have runs send heartbeats."""


def _busy(owner: str) -> None:
    raise InUse(f"another `harr up` or `harr down` is at work in {Path().resolve()}: {owner}; wait for its end")


@hold(LOCKS / "up", _busy)
def up(prefect_port: int, mlflow_port: int, serve_port: int) -> None:
    """Start what is not running yet and bring the deployments up to date; print the pages.

    Raises:
        InUse: another `harr up` or `harr down` is at work here.
        ServiceUnavailable: a port is taken, or a server ended or did not answer.
    """
    started = _running()
    print("starting Prefect, MLflow and workers", flush=True)
    for name, port, make in (("Prefect", prefect_port, prefect_command), ("MLflow", mlflow_port, mlflow_command)):
        if name not in started:
            _start(started, name, *make(port), port)
    for name in ("Prefect", "MLflow"):
        _wait_for(started, name)
    os.environ["PREFECT_API_URL"] = f"{started['Prefect']['page']}/api"
    from harr_local.deployments import (  # not earlier: Prefect reads the address on import
        POOLS,
        prepare_prefect,
    )

    gpus = len(visible_gpus())
    prepare_prefect(gpus)
    for pool in POOLS:
        if f"worker {pool}" not in started:
            command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--name", f"harr-{pool}"]
            _start(started, f"worker {pool}", command, {**os.environ, **WORKER})
    if "Serve" not in started and _has_champion():
        _start_retriever(started, serve_port)
    for name, note in started.items():
        if note["page"]:
            print(f"{name:<8} {note['page']}{WORK.get(name, '')}")
    print(f"workers  cpu, gpu ({f'{gpus} GPUs' if gpus else 'no GPU is visible: on the CPU'}); logs in .harr")


@hold(LOCKS / "up", _busy)
def down() -> None:
    """Cancel what the workers run, stop workers and servers, and forget them.

    Raises:
        InUse: another `harr up` or `harr down` is at work here.
    """
    started = _running()
    workers = [note for note in started.values() if not note["page"]]
    if "Prefect" in started:
        os.environ["PREFECT_API_URL"] = f"{started['Prefect']['page']}/api"
        try:
            from harr_local.deployments import cancel_runs, close_runs  # not earlier, likewise

            cancel_runs()
            _stop(workers)
            close_runs()
        except Exception as error:  # a server that hangs must be stopped, too
            print(
                f"warning: Prefect may show flow runs as Running that were stopped ({one_line(error)})", file=sys.stderr
            )
    _stop(workers)
    _stop([note for note in started.values() if note["page"]])
    UP.unlink(missing_ok=True)


def _running() -> Started:
    """Return what `harr up` started and still runs; kill child processes of a dead server that hold its port."""
    started = read_started(Path())
    for name in list_ended(Path()):
        note = started.pop(name)
        if note["page"] and note["process"].startswith(f"{machine()}-"):  # else its number is of another process
            _kill_group(note["process"])
            _wait_until_free(int(note["page"].rpartition(":")[2]))
    return started


def _kill_group(leader: str) -> None:
    """Kill the rest of a process group whose leader has ended, unless its number now belongs to another process."""
    group = pid_of(leader)
    # A leader not yet waited for keeps its number, as a zombie; in a container without init, permanently.
    with contextlib.suppress(psutil.NoSuchProcess):
        if process_name(group) != leader:
            return
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing is left, or it is another user's
        os.killpg(group, signal.SIGKILL)


def _wait_until_free(port: int) -> None:
    deadline = time.monotonic() + FREE_SECONDS
    while listens(port) and time.monotonic() < deadline:
        time.sleep(0.1)


def _has_champion() -> bool:
    """Return whether there is an index and a promoted retriever."""
    with contextlib.suppress(HarrError):  # nothing was promoted yet
        name = Params.load().tracking.registered_model
        champion = resolve(open_registry(Path()), f"models:/{name}@{CHAMPION}")
        return champion.kind == "retriever" and (INDEX / "manifest.json").exists()
    return False


def _start_retriever(started: Started, port: int) -> None:
    """Start `harr serve`; if that fails, everything else keeps running."""
    command = [sys.executable, "-m", "flows.cli", "serve", "--port", str(port)]
    try:
        _start(started, "Serve", command, {**os.environ}, port)
        _wait_for(started, "Serve")
    except ServiceUnavailable as error:
        if "Serve" in started:  # its port was not taken
            _stop([started.pop("Serve")])
            write_json(UP, started)
        print(f"warning: {error}", file=sys.stderr)


def _start(started: Started, name: str, command: list[str], environment: dict[str, str], port: int = 0) -> None:
    """Start a program that outlives this one, with its own log; note it before anything else happens.

    Raises:
        ServiceUnavailable: its port is taken.
    """
    if port and listens(port):
        raise ServiceUnavailable(
            f"port {port} for {name} is taken by another program; `harr up --{name.lower()}-port N`"
        )
    UP.parent.mkdir(parents=True, exist_ok=True)
    with _log_of(name).open("ab") as sink:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
    page = f"http://127.0.0.1:{port}" if port else ""
    started[name] = {"process": process_name(process.pid), "page": page}
    write_json(UP, started)


def _wait_for(started: Started, name: str) -> None:
    """Wait until a server answers.

    Raises:
        ServiceUnavailable: it ended, or does not answer.
    """
    deadline = time.monotonic() + START_SECONDS
    while not healthy(f"{started[name]['page']}{API.get(name, '')}"):
        if not is_alive(started[name]["process"]):
            raise ServiceUnavailable(f"the {name} server has ended; see {_log_of(name)}")
        if time.monotonic() > deadline:
            raise ServiceUnavailable(f"the {name} server did not answer in {START_SECONDS:.0f} s; see {_log_of(name)}")
        time.sleep(0.2)


def _log_of(name: str) -> Path:
    return UP.with_name(f"{name.lower().replace(' ', '-')}.log")


def _stop(notes: list[dict[str, str]]) -> None:
    """Stop by TERM, wait, then KILL whatever is left, including all child processes."""
    leaders = [psutil.Process(pid_of(note["process"])) for note in notes if is_alive(note["process"])]
    family = [child for leader in leaders for child in leader.children(recursive=True)]
    for leader in leaders:
        leader.send_signal(signal.SIGTERM)
    _, alive = psutil.wait_procs([*leaders, *family], timeout=STOP_SECONDS)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=5)
