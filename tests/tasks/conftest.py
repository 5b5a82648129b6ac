"""The server that tests of tasks start: MLflow."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Server, free_port


@pytest.fixture
def mlflow_server(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """``mlflow server``, not yet started, for the stages of this test."""
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    environment.pop("MLFLOW_TRACKING_URI")
    port, command = free_port(), [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", "1"]
    kept = ["--backend-store-uri", f"sqlite:///{workplace}/mlflow.db", "--artifacts-destination", "kept"]
    server = Server(workplace, [*command, "--port", str(port), *kept], port, environment)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("HARR_EXECUTION", "one")
    yield server
    server.stop()
