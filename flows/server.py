"""One local Prefect server for a whole run, where none is configured.

The first stage of a ``dvc repro`` starts a supervisor; the later stages reuse its server. The
supervisor stops the server and itself when every process that owns a run is gone, its stages among
them, so nothing is left behind. History stays under .harr/prefect; ``harr ui`` opens it again.
"""

import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import IO

from harr.errors import ServiceUnavailable, bare
from harr.io.files import read_json, write_json
from harr.io.progress import bar, shown_parts
from tasks import paths
from tasks.tracking.execution import is_alive, live_owners, own_too
from tasks.tracking.relocate import bring_home

STATE = paths.STATE / "prefect.json"
TEMPORARY = paths.STATE / "tmp"
"""Temporary files of the workers."""
UP = paths.STATE / "up.json"
"""What `harr up` started (flows/up.py): name -> the process's identity, and the page to open."""
LOG = paths.STATE / "prefect.log"
UI_LOG = paths.STATE / "ui.log"
"""What the servers of `harr ui` print."""
START_SECONDS = 90.0


def ensure_server() -> str:
    """Return the URL of the Prefect API for this run: the configured one, or a local server that is up.

    Raises:
        ServiceUnavailable: the configured server does not answer, or no local one came up.
    """
    if configured := os.environ.get("PREFECT_API_URL"):
        try:
            urllib.request.urlopen(f"{bare(configured).rstrip('/')}/health", timeout=10).close()
        except urllib.error.HTTPError:
            pass  # it answers; what it lets us do is Prefect's affair
        except (OSError, ValueError, OverflowError, http.client.HTTPException) as error:
            where = bare(configured)
            raise ServiceUnavailable(f"no Prefect server answers at PREFECT_API_URL {where} ({error})") from None
        return configured
    with _one_at_a_time():
        own_too()
        return running_url() or _start()


def _start() -> str:
    print("starting a local Prefect server; `harr ui` shows its history")
    with LOG.open("wb") as sink:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "flows.server", "--supervise", str(free_port())],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and supervisor.poll() is None:
        if running := running_url():
            return running
        time.sleep(0.1)
    raise ServiceUnavailable(
        f"no local Prefect server came up (see {LOG}); start one with `prefect server start` and set PREFECT_API_URL"
    )


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let stages that start together start one server; none starts while a supervisor decides to stop."""
    STATE.parent.mkdir(parents=True, exist_ok=True)
    with STATE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def running_url() -> str | None:
    """Return the URL in the state file, if a server answers there."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        url: str = read_json(STATE)["url"]
        if healthy(url):
            return url
    return None


def addresses() -> dict[str, str]:
    """Return pages of the servers that `harr up` started and that still run, by name; {} where there are none."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        started = read_json(UP).items()
        return {name: note["page"] for name, note in started if note["page"] and is_alive(note)}
    return {}


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(json.load(answer))
    except (OSError, ValueError):
        return False


def listens(port: int) -> bool:
    """Return whether a program takes connections at this port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def prefect_command(port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment of a Prefect server on loopback."""
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    # In memory, the places that tasks hold would be taken for ever once the server is started again.
    kept = {"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"}
    return command, {**os.environ, **kept, "PREFECT_API_URL": url, "PREFECT_SERVER_UI_API_URL": url}


def mlflow_command(port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment of an MLflow server on loopback over mlflow.db and mlruns."""
    bring_home("sqlite:///mlflow.db")
    store = ["--backend-store-uri", "sqlite:///mlflow.db", "--artifacts-destination", "mlruns"]
    address = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return [sys.executable, "-m", "mlflow", "server", *store, *address], environment


@contextlib.contextmanager
def prefect_server(port: int, log: IO[bytes] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Prefect server on loopback for the length of the block; what it prints goes to ``log``."""
    command, environment = prefect_command(port)
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(timeout=15)
        except subprocess.TimeoutExpired:
            server.kill()


def supervise(port: int) -> None:
    """Run a server until its owners are gone; the state file names it while it is up."""
    url = f"http://127.0.0.1:{port}/api"
    with prefect_server(port) as server:
        announced = False
        while server.poll() is None:
            if not announced and healthy(url):
                write_json(STATE, {"url": url, "pid": os.getpid()})
                announced = True
            if not live_owners():
                # Looked at again under the lock: a stage may have come in between.
                with _one_at_a_time():
                    if not live_owners():
                        STATE.unlink(missing_ok=True)
                        return
            time.sleep(0.2)


def show_ui(prefect_port: int, mlflow_port: int) -> None:
    """Serve the local Prefect and MLflow histories on loopback until Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if up := addresses():
        print("   ".join(f"{name}: {address}" for name, address in up.items()), "  `harr down` stops them")
        return
    command, environment = mlflow_command(mlflow_port)
    UI_LOG.parent.mkdir(parents=True, exist_ok=True)
    ports = {"Prefect": prefect_port, "MLflow": mlflow_port}
    with (
        contextlib.suppress(KeyboardInterrupt),
        UI_LOG.open("wb") as log,
        prefect_server(prefect_port, log) as prefect,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True) as mlflow,
    ):
        try:
            with bar(total=len(ports), desc="harr ui", unit="server") as shown:
                for name in shown_parts(shown, ports):
                    while prefect.poll() is None and mlflow.poll() is None and not listens(ports[name]):
                        time.sleep(0.2)
            for name, port in ports.items():
                came = f"http://127.0.0.1:{port}" if listens(port) else f"did not come up; see {UI_LOG}"
                print(f"{name:<8} {came}")
            print("Ctrl-C stops both", flush=True)
            mlflow.wait()
        finally:
            mlflow.terminate()


if __name__ == "__main__":  # what ensure_server starts
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    supervise(int(sys.argv[-1]))
