"""Tools for tests that start a real server: wait until it listens, stop it for a while; and Milvus."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import urllib3

BIN = Path(sys.executable).parent
ETCD = """
name: default
listen-client-urls: http://127.0.0.1:{client}
advertise-client-urls: http://127.0.0.1:{client}
listen-peer-urls: http://127.0.0.1:{peer}
initial-advertise-peer-urls: http://127.0.0.1:{peer}
initial-cluster: default=http://127.0.0.1:{peer}
"""
MILVUS = """
import socket
import milvus

def bound(config, port):
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None

milvus.MilvusServerConfig.try_bind_port = bound
milvus.main()
"""
"""On a restart the package would take another port while connections to the old one linger."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(condition: Callable[[], Any], seconds: float = 200, pause: float = 0.1) -> Any:
    """Wait until a condition holds; return its value, or the last one."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
    return value


def ask(url: str, body: Any = None) -> Any:
    """Return Prefect's answer; while its SQLite is locked (503) ask again, as Prefect's own client does."""
    again = urllib3.Retry(
        20, connect=0, read=0, status_forcelist=[503], allowed_methods=None, backoff_factor=0.2, backoff_max=2
    )
    method, headers = "GET" if body is None else "POST", {"Connection": "close"}
    answer = urllib3.request(method, url, json=body, headers=headers, retries=again, timeout=60)
    assert answer.status < 400, f"{answer.status} {url}: {answer.data[:500]!r}"
    return json.loads(answer.data or b"null")


def wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path, seconds: float = 200) -> None:
    """Wait until the process listens."""
    until(lambda: listens(port) or process.poll() is not None, seconds)
    assert process.poll() is None and listens(port), log.read_text()


@dataclass
class Server:
    """A program that listens on one loopback port, in its own process group.

    It can be killed, restarted, suspended (SIGSTOP) and resumed. Its log is ``folder``/server.log unless another is
    named.
    """

    folder: Path
    command: list[str]
    port: int
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    process: "subprocess.Popen[bytes] | None" = None
    log: Path | None = None

    def start(self) -> None:
        """Start it and wait until it listens; Milvus occasionally never does, and is started once more."""
        log = self.log or self.folder / "server.log"
        for last in (False, True):
            with log.open("ab") as out:
                self.process = subprocess.Popen(
                    self.command, stdout=out, stderr=out, env=self.environment, start_new_session=True, cwd=self.folder
                )
            try:
                return wait_for(self.port, self.process, log, 120)
            except AssertionError:
                if last:
                    raise
                self.stop()

    def signal(self, number: int) -> None:
        """Send a signal to it and everything that it has started."""
        assert self.process
        os.killpg(self.process.pid, number)

    def stop(self) -> None:
        """Kill it and everything that it has started."""
        if self.process:
            with suppress(ProcessLookupError):  # it has ended
                self.signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


def server_of(folder: Path, make: Callable[[int], tuple[list[str], dict[str, str]]], **environment: str) -> Server:
    """Return a server that works in a folder, by ``prefect_command`` or ``mlflow_command``."""
    command, own = make(port := free_port())
    return Server(folder, command, port, own | environment)


def milvus(folder: Path, *, lite: bool) -> Server:
    """Return an empty Milvus, not yet started: 2.3.5, which asks for a token, or Milvus Lite's server, without one."""
    port, data = free_port(), str(folder / "data")
    if lite:
        command = [f"{BIN}/milvus-lite", "server", "--data-dir", data, "--host", "127.0.0.1", "--port", str(port)]
        return Server(folder, command, port)
    if not find_spec("milvus"):
        pytest.skip("package milvus is missing: pip install '.[dev]' (only for Linux on x86-64)")
    # It listens on every address, whatever its settings.
    command = [sys.executable, "-c", MILVUS, "--data", data, "--proxy-port", str(port)]
    command += ["--authorization-enabled", "true"]
    # Its etcd takes two fixed ports, so a second Milvus on the machine would not start.
    etcd = folder / "etcd.yaml"
    etcd.write_text(ETCD.format(client=free_port(), peer=free_port()))
    return Server(folder, command, port, os.environ | {"ETCD_CONFIG_PATH": str(etcd)})


@contextmanager
def milvus_lite(folder: Path) -> Iterator[str]:
    """Run Milvus Lite in a thread as ``milvus-lite server`` does: at an address, for several clients."""
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    server, database, port = start_server_in_thread(str(folder))
    yield f"http://127.0.0.1:{port}"
    server.stop(grace=2)
    database.close()
