"""What the server says when something behind it fails, and that it ends with a request that never does."""

import asyncio
import http.client
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from harr.errors import DamagedFile, HarrError, ParamsError, ServiceUnavailable
from harr.serve.application import application
from harr.serve.follower import Follower
from harr.serve.searcher import Answer, Searcher
from harr.serve.service import RetrieverService

ROOT = Path(__file__).parents[3]
SERVER = """
from pathlib import Path
import flows.serve
from harr.serve.application import application
from harr.serve.follower import Follower
from harr.serve.searcher import Searcher
from harr.serve.service import RetrieverService

flows.serve.DRAIN_SECONDS = 1
searcher = Searcher(Path())
service = RetrieverService(searcher, Follower("models/x", Path(), Path(), searcher.load), room=10)
listener = flows.serve._bound("127.0.0.1", 0)
flows.serve._over_http(application(service), listener, str(listener.getsockname()[1]))
"""


class Failing(Searcher):
    def __init__(self, error: HarrError) -> None:
        super().__init__(Path())
        self._error = error

    def answer(self, asks: object) -> list[Answer]:
        raise self._error


@pytest.mark.parametrize(
    ("error", "status"),
    [(ParamsError("wrong"), 422), (ServiceUnavailable("Milvus is away"), 503), (DamagedFile("damaged"), 500)],
)
def test_who_is_to_blame_is_told(error: HarrError, status: int) -> None:
    from starlette.testclient import TestClient

    searcher = Failing(error)
    service = RetrieverService(searcher, Follower("x", Path(), Path(), searcher.load), room=10)
    with TestClient(application(service), base_url="http://127.0.0.1") as client:
        reply = client.post("/search", json={"question": "Who?"})
    assert (reply.status_code, reply.json()) == (status, {"error": str(error)})


def test_a_client_that_leaves_before_its_body_has_come_is_no_fault_of_the_server() -> None:
    searcher = Searcher(Path())
    service = RetrieverService(searcher, Follower("x", Path(), Path(), searcher.load), room=10)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/search",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
    }

    async def left(*_: object) -> dict[str, str]:
        return {"type": "http.disconnect"}

    asyncio.run(application(service)(scope, left, left))
    service.close()
    assert b'harr_requests_total{route="/search",status="499"} 1.0' in service.monitor.text()


def test_a_body_that_never_comes_does_not_keep_the_server(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with closing(socket.create_connection(("127.0.0.1", port))) as half:
            half.sendall(b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as other:
                other.request("GET", "/health")
                assert other.getresponse().status == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
