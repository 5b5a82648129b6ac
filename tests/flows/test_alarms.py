"""The automation of docs/operations.md: a webhook learns of a failed run, and of a pool whose worker is gone."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Queue

import pytest
from harr_local.servers import healthy, prefect_command
from servers import ask, server_of, until
from serving import running

pytestmark = pytest.mark.services
PAGE = (Path(__file__).parents[2] / "docs/operations.md").read_text(encoding="utf-8")
AUTOMATION = re.findall(r"```yaml\n(name: operators.*?)```", PAGE, re.DOTALL)
BLOCK = re.findall(r"^python -c '(from prefect.blocks.webhook .*)'$", PAGE, re.MULTILINE)
FLOW = "from prefect import flow\n@flow\ndef nightly():\n    raise ValueError('no disk')\nnightly()\n"


class Receiver(BaseHTTPRequestHandler):
    """A chat that accepts every message."""

    messages: "Queue[str]" = Queue()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.messages.put(json.loads(body)["text"])
        self.send_response(200)
        self.end_headers()


@pytest.fixture
def chat() -> Iterator[str]:
    """The address of a webhook."""
    with running(Receiver) as address:
        yield f"{address}/hook"


def test_a_failed_run_and_a_dead_worker_are_reported(tmp_path: Path, chat: str) -> None:
    prefect = server_of(tmp_path, prefect_command, PREFECT_HOME=str(tmp_path / "prefect"))
    try:
        prefect.start()
        url = prefect.environment["PREFECT_API_URL"]
        assert until(lambda: healthy(url))

        def run(*command: str) -> str:
            environment = {**os.environ, **prefect.environment}
            done = subprocess.run(
                [sys.executable, *command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            return done.stdout + done.stderr

        block = run("-c", BLOCK[0].replace("https://chat.example/hook", chat)).split()[-1]
        (tmp_path / "alarm.yaml").write_text(AUTOMATION[0].replace("ID", block))
        assert "Created" in run("-m", "prefect", "automation", "create", "--from-file", "alarm.yaml")
        run("-c", FLOW)
        assert Receiver.messages.get(timeout=120).startswith("prefect.flow-run.Failed: ")
        ask(f"{url}/work_pools/", {"name": "gpu", "type": "process"})
        ask(f"{url}/work_pools/gpu/workers/heartbeat", {"name": "harr-gpu", "heartbeat_interval_seconds": 1})
        assert Receiver.messages.get(timeout=120) == "prefect.work-pool.not-ready: gpu"
    finally:
        prefect.stop()
