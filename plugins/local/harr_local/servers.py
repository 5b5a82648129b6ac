"""Servers on loopback: how to start Prefect's and MLflow's, whether one answers, and which `harr up` started."""

import os
import socket
import sys
import urllib.request
from pathlib import Path

from harr.io.files import read_state
from harr.services.mlflow_store import bring_home
from tasks.paths import STATE
from tasks.tracking.execution import is_alive

Started = dict[str, dict[str, str]]
UP = STATE / "up.json"
"""Processes that `harr up` started: name -> the process's identity, and the page to open, "" for a worker."""


def healthy(address: str) -> bool:
    """Return whether a server reports at ``address``/health that it is well."""
    try:
        urllib.request.urlopen(f"{address}/health", timeout=2).close()
    except OSError:
        return False
    return True


def listens(port: int) -> bool:
    """Return whether a program accepts connections at this loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def prefect_command(port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment of a Prefect server on loopback."""
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    # Kept in memory, concurrency slots of tasks would stay taken after a restart of the server.
    settings = {"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"}
    return command, {**os.environ, **settings, "PREFECT_API_URL": url, "PREFECT_SERVER_UI_API_URL": url}


def mlflow_command(port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment of an MLflow server on loopback over mlflow.db and mlruns."""
    bring_home("sqlite:///mlflow.db")
    store = ["--backend-store-uri", "sqlite:///mlflow.db", "--artifacts-destination", "mlruns"]
    address = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return [sys.executable, "-m", "mlflow", "server", *store, *address], environment


def read_started(root: Path) -> Started:
    """Return the processes that `harr up` noted in a project, whether they still run or not.

    Raises:
        DamagedFile: says how to go on.
    """
    path = root / UP
    return read_state(path, "stop its servers and workers yourself, then delete it") if path.exists() else {}


def list_ended(root: Path) -> list[str]:
    """Return the names of processes that `harr up` started and that ended without `harr down`."""
    return [name for name, note in read_started(root).items() if not is_alive(note["process"])]
