"""Worlds and a finished run for the tests of tasks; and what they start: MLflow, a stand-in for S3, expectations."""

import os
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import furnish
from servers import Server, free_port
from stages import make_world, world_params


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> Path:
    """A folder where stages download, embed and index have run (``stages.world_params``); nobody changes it."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        furnish(folder, patch)
        make_world(world_params(tiny))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, world: Path) -> Iterator[Path]:
    """A copy of that world, in which all tests of a file stand."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        furnish(folder, patch)
        patch.syspath_prepend(folder)
        shutil.copytree(world / "data", "data")
        shutil.copy(world / "params.yaml", ".")
        yield folder


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
