"""A real MLflow server that a test starts and stops."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path, seconds: float = 200) -> None:
    """Until the process listens."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(log.read_text())


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
