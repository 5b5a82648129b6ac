"""What a test of tasks starts: real servers of MLflow, a stand-in for S3, and Great Expectations' process."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from servers import wait_for

from flows.server import free_port
from tasks.expectations.process import checker


@pytest.fixture(autouse=True)
def expectations_end(tmp_path: Path) -> Iterator[None]:
    """End the process of Great Expectations with the test that began it: it works in that test's folder."""
    before = checker.cache_info().currsize
    yield
    if not before:
        end_checker()


def end_checker() -> None:
    """Let the process write its last page and end."""
    if checker.cache_info().currsize:
        checker().communicate(timeout=60)
    checker.cache_clear()


@dataclass
class Server:
    """``mlflow server`` on one port; ``backend`` and ``destination`` may be changed before it starts."""

    folder: Path
    backend: str
    destination: str
    environment: dict[str, str]
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start it and wait until it listens."""
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--backend-store-uri", self.backend, "--artifacts-destination", self.destination]
        log = self.folder / "server.log"
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, env=self.environment, start_new_session=True, cwd=self.folder
            )
        wait_for(self.port, self.process, log)

    def stop(self) -> None:
        """Kill it with its workers."""
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture
def mlflow_server(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server, not yet started, that the stages of this test talk to."""
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    environment.pop("MLFLOW_TRACKING_URI")
    server = Server(workplace, f"sqlite:///{workplace}/mlflow.db", str(workplace / "kept"), environment)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("HARR_EXECUTION", "one")
    yield server
    server.stop()


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A bucket of a local stand-in for S3: its address, and what a client's environment must say."""
    pytest.importorskip("moto", reason="moto is missing: pip install '.[dev]'")
    port, log = free_port(), tmp_path / "s3.log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_for(port, process, log)
        endpoint = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/models", method="PUT"), timeout=30).close()
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        yield (
            "s3://models",
            {"MLFLOW_S3_ENDPOINT_URL": endpoint, "AWS_DEFAULT_REGION": "us-east-1"} | dict.fromkeys(names, "stand-in"),
        )
    finally:
        process.terminate()
        process.wait(timeout=60)
