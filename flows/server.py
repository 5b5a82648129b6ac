"""Servers of Prefect and MLflow on loopback: how they are started, and which of them run."""

import contextlib
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

from harr.io.files import read_json
from tasks import paths
from tasks.tracking.execution import is_alive
from tasks.tracking.relocate import bring_home

TEMPORARY = paths.STATE / "tmp"
"""Temporary files of the workers."""
HEARTBEAT = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
"""The variable by which a run says that it lives, every so many seconds."""
UP = paths.STATE / "up.json"
"""What `harr up` started (flows/up.py): name -> the process's identity, and the page to open."""


def addresses() -> dict[str, str]:
    """Return pages of the servers that `harr up` started and that still run, by name; {} where there are none."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        started = read_json(UP).items()
        return {name: note["page"] for name, note in started if note["page"] and is_alive(note["process"])}
    return {}


def log_of(name: str) -> Path:
    """Return the log of a server or worker that `harr up` started."""
    return UP.with_name(f"{name.lower().replace(' ', '-')}.log")


def list_ended() -> list[str]:
    """Return the names of what `harr up` started and what has ended since, which nobody stopped by `harr down`."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return [name for name, note in read_json(UP).items() if not is_alive(note["process"])]
    return []


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
    settings = {"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"}
    return command, {**os.environ, **settings, "PREFECT_API_URL": url, "PREFECT_SERVER_UI_API_URL": url}


def mlflow_command(port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment of an MLflow server on loopback over mlflow.db and mlruns."""
    bring_home("sqlite:///mlflow.db")
    store = ["--backend-store-uri", "sqlite:///mlflow.db", "--artifacts-destination", "mlruns"]
    address = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return [sys.executable, "-m", "mlflow", "server", *store, *address], environment
