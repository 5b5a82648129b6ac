"""What the tests of tasks start: MLflow, and a stand-in for S3."""

import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Server, free_port


@pytest.fixture
def mlflow_server(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """``mlflow server``, not yet started, that the stages of this test talk to."""
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


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A bucket of a local stand-in for S3: its address, and what a client's environment must say."""
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
