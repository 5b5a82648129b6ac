"""What tests need that start a real server: a free port, and to wait until it listens."""

import socket
import subprocess
import time
from pathlib import Path


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
