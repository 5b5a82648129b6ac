"""The real server on loopback: how it is spoken to, is full, changes its model and ends (answers: test_application)."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from projects import register

from harr.corpus.passages import read_questions
from harr.rag.sources.retrieve import RetrieveClient
from harr.services.model_registry import open_registry, registry_address
from harr.types import Hop, Search
from tasks.paths import QUESTIONS, RETRIEVER

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]  # imports alone take a minute on a busy machine
NAME = "harr-smoke"
CHAMPION = f"models:/{NAME}@champion"
START_SECONDS = 180.0
HOPS = (Hop("Who founded it?", "Ada Brown", "FOUND"),)


@dataclass
class Running:
    """A server that a test started."""

    process: "subprocess.Popen[str]"
    port: int
    told: str

    def ask(
        self, path: str, body: Any = None, method: str = "POST", headers: dict[str, str] | None = None
    ) -> tuple[int, Any, Any]:
        """Send one request; status, JSON (or text) and headers of the answer."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, raw if method == "POST" else None, headers or {})
            reply = connection.getresponse()
            text = reply.read().decode()
        is_json = "json" in reply.headers.get("content-type", "")
        return reply.status, json.loads(text) if is_json else text, reply.headers

    def get(self, path: str, **headers: str) -> tuple[int, Any, Any]:
        return self.ask(path, method="GET", headers=headers)

    def ids(self, body: dict[str, Any]) -> list[str]:
        status, told, _ = self.ask("/search", body)
        assert status == 200, told
        return [passage["id"] for passage in told["passages"]]


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "flows.cli", "serve", *options]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"} | more


@contextmanager
def started(project: Path, *options: str, **more: str) -> Iterator[Running]:
    with (project / "serve.log").open("w") as log:
        words = command("--port", "0", *options)
        process = subprocess.Popen(
            words, cwd=project, env=environment(**more), stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout is not None
        told = process.stdout.readline()
        assert "http://" in told, (project / "serve.log").read_text()
        try:
            yield Running(process, int(told.split("http://")[1].split()[0].rpartition(":")[2]), told)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def ended(project: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run a server that does not come up."""
    words = command(*options)
    return subprocess.run(
        words, cwd=project, env=environment(), capture_output=True, text=True, timeout=START_SECONDS, check=False
    )


@pytest.fixture(scope="module")
def client(project: Path) -> Any:
    """The registry, in which the first retriever is the champion and the second one is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/mlflow.db")
        client = open_registry(registry_address(Path()))
        client.search_experiments()
        assert [register(client, one) for one in (RETRIEVER, Path("second"))] == ["1", "2"]
        client.set_registered_model_alias(NAME, "champion", "1")
        yield client


@pytest.fixture(scope="module")
def server(project: Path) -> Iterator[Running]:
    with started(project, "--model", str(RETRIEVER), "--dtype", "float32") as running:
        yield running


async def _over_http(port: int, arguments: dict[str, Any]) -> Any:
    async with (
        streamable_http_client(f"http://127.0.0.1:{port}/mcp") as streams,
        ClientSession(*streams[:2]) as session,
    ):
        return await _call(session, arguments)


async def _over_stdio(project: Path, arguments: dict[str, Any]) -> Any:
    words = command("--model", str(RETRIEVER), "--dtype", "float32", "--stdio")
    spoken = StdioServerParameters(command=words[0], args=words[1:], env=environment(), cwd=project)
    async with stdio_client(spoken) as streams, ClientSession(*streams) as session:
        return await _call(session, arguments)


async def _call(session: ClientSession, arguments: dict[str, Any]) -> Any:
    await session.initialize()
    [tool] = (await session.list_tools()).tools
    assert tool.name == "search" and tool.inputSchema["required"] == ["query"]
    refused = await session.call_tool("search", {"query": "x" * 30_000})
    assert refused.isError and refused.content[0].text == "query: String should have at most 20000 characters"
    empty = await session.call_tool("search", {"query": ""})
    assert "nothing is asked; send a question" in empty.content[0].text and "\n" not in empty.content[0].text
    return await session.call_tool("search", arguments)


@pytest.mark.parametrize("over", ["http", "stdio"])
def test_a_client_of_mcp_finds_what_the_policy_finds(
    project: Path, server: Running, within: Callable[..., list[list[str]]], over: str
) -> None:
    asked = read_questions(project / QUESTIONS / "test.jsonl")[0]
    hops = [{"query": "Who founded it?", "answer": "Ada Brown"}]
    arguments = {"query": "Where was she born?", "question": asked.text, "hops": hops}
    told = asyncio.run(_over_http(server.port, arguments) if over == "http" else _over_stdio(project, arguments))
    assert not told.isError
    found = [passage["id"] for passage in told.structuredContent["passages"]]
    assert found == within([Search(asked, "Where was she born?", HOPS)])[0]


def test_a_token_is_asked_and_a_full_queue_is_a_clear_503(project: Path) -> None:
    refused = ended(project, "--host", "0.0.0.0")
    assert refused.returncode == 1 and refused.stdout == ""
    assert "--host 0.0.0.0 is reached from other machines, and $HARR_SERVE_TOKEN holds no token" in refused.stderr
    options = ("--model", str(RETRIEVER), "--host", "0.0.0.0", "--room", "64")
    with started(project, *options, HARR_SERVE_TOKEN="sesame") as server:
        assert server.ask("/search", {"question": "Who?"})[0] == 401 and "sesame" not in server.told
        inside = {"Authorization": "Bearer sesame"}
        many = {"queries": [f"Who founded Acme {n}?" for n in range(1000)]}
        answers: list[tuple[int, Any, Any]] = []
        threads = [
            threading.Thread(target=lambda: answers.append(server.ask("/retrieve", many, headers=inside)))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        turned_away = [(told, headers) for status, told, headers in answers if status == 503]
        assert turned_away and {status for status, _, _ in answers} == {200, 503}
        for told, headers in turned_away:
            assert "searches are waiting; try again in" in told["error"] and int(headers["Retry-After"]) >= 1
        assert server.ask("/search", {"question": "Who?"}, headers=inside)[0] == 200


class Load:
    """Clients that search until they are stopped; every answer that is no answer is kept."""

    def __init__(self, server: Running, clients: int) -> None:
        self.failures: list[Any] = []
        self.versions: list[str] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._search, args=(server.port,)) for _ in range(clients)]

    def _search(self, port: int) -> None:
        body = json.dumps({"question": "Who founded Acme?"}).encode()
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            while not self._ended.is_set():
                try:
                    connection.request("POST", "/search", body)
                    reply = connection.getresponse()
                    told = json.loads(reply.read())
                    if reply.status != 200:
                        self.failures.append(told)
                    self.versions.append(told.get("version", ""))
                except (OSError, http.client.HTTPException) as error:
                    self.failures.append(error)
                    connection.close()

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until something holds."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, "it never came"
        time.sleep(0.05)


def test_the_champion_is_followed_without_a_failed_request_and_outlives_a_kill(project: Path, client: Any) -> None:
    with started(project, "--model", CHAMPION) as server:
        with Load(server, 4) as load:
            wait_for(lambda: load.versions[-1:] == ["1"], 60)
            found = {"1": server.ids({"question": "Who founded Acme?"})}
            for version in ("2", "1", "2"):  # a promotion, a rollback, and a promotion
                client.set_registered_model_alias(NAME, "champion", version)
                wait_for(lambda version=version: load.versions[-1:] == [version], 60)
                ids = server.ids({"question": "Who founded Acme?"})
                assert found.setdefault(version, ids) == ids
        wait_for(lambda: server.get("/health")[1]["changes"] == 3, 60)
        assert found["1"] != found["2"]
        assert not load.failures
        server.process.send_signal(signal.SIGKILL)
    with started(project, "--model", CHAMPION, MLFLOW_TRACKING_URI="http://127.0.0.1:9") as server:
        assert server.get("/health")[1]["version"] == "2"
        assert server.ids({"question": "Who founded Acme?"}) == found["2"]
        with Load(server, 8) as load:
            wait_for(lambda: len(load.versions) > 20, 60)
            half = socket.create_connection(("127.0.0.1", server.port))  # its body never comes, and keeps no server
            half.sendall(b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(120) == 0
        half.close()
    # What was asked is answered; a client that asks a server that is gone is told so by its machine.
    gone = (ConnectionError, http.client.BadStatusLine)
    assert all(isinstance(one, gone) for one in load.failures), load.failures


def test_a_port_that_is_taken_is_one_line_and_who_has_it_answers_a_pipeline(project: Path, server: Running) -> None:
    done = ended(project, "--port", str(server.port))
    found = RetrieveClient(f"http://127.0.0.1:{server.port}/retrieve", 30.0)
    assert [len(hits) for hits in found(["Who founded Acme?", "Where?"], 3)] == [3, 3]
    found._client.close()  # a pipeline keeps its connection for as long as it runs
    assert done.returncode == 1 and f"--host 127.0.0.1 --port {server.port} cannot be had" in done.stderr
    assert "Traceback" not in done.stderr
