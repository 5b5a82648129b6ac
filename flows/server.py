"""Servers of Prefect and MLflow on loopback: how they are started, and `harr ui`."""

import contextlib
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

from harr.io.files import read_json
from harr.io.progress import bar, shown_parts
from tasks import paths
from tasks.tracking.execution import is_alive
from tasks.tracking.relocate import bring_home

TEMPORARY = paths.STATE / "tmp"
"""Temporary files of the workers."""
UP = paths.STATE / "up.json"
"""What `harr up` started (flows/up.py): name -> the process's identity, and the page to open."""
UI_LOG = paths.STATE / "ui.log"
"""What the servers of `harr ui` print."""


def addresses() -> dict[str, str]:
    """Return pages of the servers that `harr up` started and that still run, by name; {} where there are none."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        started = read_json(UP).items()
        return {name: note["page"] for name, note in started if note["page"] and is_alive(note["process"])}
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
