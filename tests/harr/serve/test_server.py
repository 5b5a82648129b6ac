"""The real server on loopback: protocol, overload, model changes, shutdown (for answers: test_application)."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from projects import export_kinds, register
from servers import until

from flows.serve import _bind, _listen
from harr.corpus.passages import read_questions
from harr.errors import ParamsError
from harr.params import Params
from harr.services.model_registry import open_registry
from harr.types import Hop, Search
from tasks.paths import QUESTIONS, RETRIEVER
from tasks.registry.history import champions, move
from tasks.registry.promote import rollback

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]  # imports alone take a minute on a busy machine
NAME = "harr-smoke"
COMMAND = [sys.executable, "-m", "flows.cli", "serve"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
ASKED = {"question": "Who founded Acme?"}
HOPS = (Hop("Who founded it?", "Ada Brown", "FOUND"),)


@dataclass
class Running:
    """A server started by a test."""

    process: "subprocess.Popen[str]"
    first_line: str
    client: httpx.Client

    @property
    def port(self) -> int:
        return int(self.client.base_url.port or 0)

    def ids(self) -> list[str]:
        return [passage["id"] for passage in self.client.post("/search", json=ASKED).json()["passages"]]


@contextmanager
def started(project: Path, *options: str, **more: str) -> Iterator[Running]:
    words = [*COMMAND, "--port", "0", *options]
    with (project / "serve.log").open("w") as log:
        process = subprocess.Popen(
            words, cwd=project, env=ENVIRONMENT | more, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "http://" in line, (project / "serve.log").read_text()
    port = line.split("http://")[1].split()[0].rpartition(":")[2]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield Running(process, line, client)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ended(project: Path, *options: str) -> str:
    """Return what a server prints that fails to start."""
    done = subprocess.run(
        [*COMMAND, *options], cwd=project, env=ENVIRONMENT, capture_output=True, text=True, timeout=180
    )
    assert (done.returncode, done.stdout) == (1, "") and "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def server(project: Path) -> Iterator[Running]:
    with started(project, "--model", str(RETRIEVER), "--dtype", "float32") as running:
        yield running


async def _over_http(port: int, arguments: dict[str, Any]) -> Any:
    address = f"http://127.0.0.1:{port}/mcp"
    async with streamable_http_client(address) as streams, ClientSession(*streams[:2]) as session:
        return await _call(session, arguments)


async def _call(session: ClientSession, arguments: dict[str, Any]) -> Any:
    await session.initialize()
    [tool] = (await session.list_tools()).tools
    assert tool.name == "search" and tool.inputSchema["required"] == ["query"]
    refused = await session.call_tool("search", {"query": "x" * 30_000})
    assert refused.isError and "String should have at most 20000 characters" in refused.content[0].text
    empty = await session.call_tool("search", {"query": ""})
    assert "nothing is asked; send a question" in empty.content[0].text
    return await session.call_tool("search", arguments)


def test_a_client_of_mcp_finds_what_the_policy_finds(
    project: Path, server: Running, within: Callable[..., list[list[str]]]
) -> None:
    asked = read_questions(project / QUESTIONS / "test.jsonl")[0]
    hops = [{"query": "Who founded it?", "answer": "Ada Brown"}]
    arguments = {"query": "Where was she born?", "question": asked.text, "hops": hops}
    result = asyncio.run(_over_http(server.port, arguments))
    assert not result.isError
    found = [passage["id"] for passage in result.structuredContent["passages"]]
    assert found == within([Search(asked, "Where was she born?", HOPS)])[0]


def test_a_token_is_asked_and_a_full_queue_is_a_clear_503(project: Path) -> None:
    message = "--host 0.0.0.0 is reached from other machines, and $HARR_SERVE_TOKEN holds no token"
    assert message in ended(project, "--host", "0.0.0.0")
    options = ("--model", str(RETRIEVER), "--host", "0.0.0.0", "--room", "64")
    with started(project, *options, HARR_SERVE_TOKEN="sesame") as server:
        assert server.client.post("/search", json=ASKED).status_code == 401 and "sesame" not in server.first_line
        server.client.headers["Authorization"] = "Bearer sesame"
        many = {"queries": [f"Who founded Acme {n}?" for n in range(1000)]}
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: server.client.post("/retrieve", json=many), range(6)))
        turned_away = [one for one in answers if one.status_code == 503]
        assert turned_away and {one.status_code for one in answers} == {200, 503}
        for one in turned_away:
            assert "searches are waiting; try again in" in one.json()["error"] and int(one.headers["Retry-After"]) >= 1
        assert server.client.post("/search", json=ASKED).status_code == 200


class Load:
    """Clients that search until stopped; failures are recorded."""

    def __init__(self, server: Running, clients: int) -> None:
        self.failures: list[Any] = []
        self.versions: list[str] = []
        self._server, self._ended = server, threading.Event()
        self._threads = [threading.Thread(target=self._search) for _ in range(clients)]

    def _search(self) -> None:
        with httpx.Client(base_url=self._server.client.base_url, timeout=60) as client:
            while not self._ended.is_set():
                try:
                    reply = client.post("/search", json=ASKED)
                    if reply.status_code != 200:
                        self.failures.append(reply.text)
                    self.versions.append(reply.json().get("version", ""))
                except httpx.TransportError as error:
                    self.failures.append(error)

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def test_a_champion_of_every_kind_is_followed_without_a_failed_request_and_outlives_a_kill(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is promoted over the previous one, and rolled back."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/mlflow.db")
    client, champion = open_registry(Path()), f"models:/{NAME}@champion"
    client.search_experiments()
    folders = {"trained": RETRIEVER} | export_kinds()
    versions = {register(client, folder): kind for kind, folder in reversed(folders.items())}
    last = list(versions)[-1]
    client.delete_registered_model_alias(NAME, "champion")
    move(client, NAME, last, [])
    with started(project, "--model", champion) as server:
        with Load(server, 4) as load:
            changes = 0

            def follow(version: str) -> list[str]:
                assert until(lambda: load.versions[-1:] == [version])
                return server.ids()

            found = {last: follow(last)}
            for version in reversed(list(versions)[:-1]):
                move(client, NAME, version, champions(client, NAME))
                found[version] = follow(version)
                rollback(Params.load())
                assert follow(last) == found[last], versions[version]
                changes += 2
        assert len({tuple(ids) for ids in found.values()}) > len(folders) / 2
        assert not load.failures
        move(client, NAME, "2", champions(client, NAME))
        assert until(lambda: server.client.get("/health").json()["changes"] == changes + 1)
        server.process.send_signal(signal.SIGKILL)
    with started(project, "--model", champion) as server:
        assert server.client.get("/health").json()["version"] == "2"
        assert server.ids() == found["2"]
        with Load(server, 8) as load:
            assert until(lambda: len(load.versions) > 20)
            half = socket.create_connection(("127.0.0.1", server.port))  # its body never comes; the server ends anyway
            half.sendall(b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(120) == 0
        half.close()
    # Pending requests were answered; later clients get an error from their own machine.
    assert all(isinstance(one, httpx.NetworkError | httpx.RemoteProtocolError) for one in load.failures), load.failures


def test_an_address_that_cannot_be_had_says_which_part_to_change(project: Path) -> None:
    with _bind("::1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        message = f"--host ::1 --port {port} cannot be had (Address already in use); name another port"
        assert message in ended(project, "--host", "[::1]", "--port", str(port)), "in brackets, as in an address"
    with pytest.raises(ParamsError, match=r"\(Cannot assign requested address\); name another host"):
        _bind("192.0.2.1", 0)


def test_of_two_servers_that_start_at_once_on_a_port_one_ends_in_a_line() -> None:
    with _bind("127.0.0.1", 0) as first, _bind("127.0.0.1", first.getsockname()[1]) as second:
        port = second.getsockname()[1]
        _listen(second, "127.0.0.1", port)
        with pytest.raises(ParamsError, match=rf"--port {port} cannot be had \(Address already in use\)"):
            _listen(first, "127.0.0.1", port)
