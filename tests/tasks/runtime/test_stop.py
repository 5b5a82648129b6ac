"""Ctrl-C while a command waits for a server: it ends in seconds, whatever the server does."""

import signal
import subprocess
import sys
import threading
import time

import pytest
from serving import serving

ASKS = """
from harr.params.generator import ServedParams
from harr.params.servers import ServerParams
from harr.rag.generation.server import ServerGenerator
from harr.types import Generate
from tasks.runtime.command import run_command

requests = [Generate(prompt=str(number)) for number in range(40)]
place = ServerParams(name="llm", urls=({address!r},), timeout_seconds=100, deadline_seconds=300)
server = ServerGenerator(ServedParams(kind="server", model="small", server=place))
run_command(lambda: print(server.complete(requests)))
"""


@pytest.mark.services
@pytest.mark.parametrize("status", [200, 503], ids=["hangs", "refuses"])
def test_a_command_that_waits_for_a_server_ends_at_ctrl_c(status: int) -> None:
    """Each waiting thread would otherwise use its own deadline, five minutes."""
    over = threading.Event()

    def reply(body: object, number: int) -> tuple[int, object]:
        over.wait(100 if status == 200 else 0)
        return status, {}

    with serving(reply) as served:
        command = [sys.executable, "-c", ASKS.format(address=served.base_url)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            while not served.bodies and process.poll() is None:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            try:
                said = process.communicate(timeout=30)[1]  # 5 s on an idle machine
            finally:
                process.kill()
        over.set()
    assert process.returncode == 130 and "stopped; finished work is kept" in said
