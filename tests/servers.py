"""What tests need that start a real server: to wait until it listens."""

import socket
import subprocess
import time
from pathlib import Path


def wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path, seconds: float = 200) -> None:
    """Until the process listens."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(log.read_text())
