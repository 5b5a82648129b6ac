"""The real server on loopback: what it answers, to whom, what it refuses, and how it changes its model and ends."""

import asyncio
import http.client
import json
import os
import shutil
import signal
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
from projects import make_project, train_stand_in

from harr.arms import ARMS, FULL
from harr.builders.setup import open_players
from harr.corpus.passages import read_questions
from harr.io.files import digest_of
from harr.params import Params
from harr.rag.sources.retrieve import RetrieveClient
from harr.services.model_registry import open_registry, registry_address
from harr.types import Hop, Search
from tasks.paths import PLACES, QUESTIONS, RETRIEVER

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


def register(client: Any, folder: Path) -> str:
    """Make a version of a model folder, as stage merge's is registered."""
    run = client.create_run("0").info
    client.log_artifacts(run.run_id, str(folder), "retriever")
    if not client.search_registered_models():
        client.create_registered_model(NAME)
    tags = {"model": digest_of(folder), "kind": "retriever"}
    return str(client.create_model_version(NAME, f"{run.artifact_uri}/retriever", run.run_id, tags).version)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with two trained retrievers, both registered; the first one is the champion and models/retriever."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        make_project()
        train_stand_in(0.6)
        shutil.copytree(RETRIEVER, "second")
        train_stand_in(0.3)
        client = open_registry(registry_address(Path()))
        client.search_experiments()
        numbers = [register(client, one) for one in (RETRIEVER, Path("second"))]
        assert numbers == ["1", "2"]
        client.set_registered_model_alias(NAME, "champion", "1")
        yield folder


@pytest.fixture(scope="module")
def server(project: Path) -> Iterator[Running]:
    with started(project, "--model", str(RETRIEVER), "--dtype", "float32") as running:
        yield running


def within(project: Path, searches: list[Search], model: str = "champion") -> list[list[str]]:
    """Ids that harr itself finds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        with open_players(Params.load(), PLACES, [], candidates="corpus") as player:
            policy = player(ARMS[FULL], RETRIEVER) if model == "champion" else player(ARMS["frozen"], None)
            return [[passage.id for passage in found.passages] for found in policy.retrieve(searches)]


def questions(project: Path) -> list[Any]:
    return read_questions(project / QUESTIONS / "test.jsonl")[:6]


def test_search_finds_what_the_policy_finds(project: Path, server: Running) -> None:
    asked = questions(project)
    hops = [{"query": hop.query, "answer": hop.answer, "status": hop.status} for hop in HOPS]
    first = [{"question": one.text} for one in asked]
    later = [{"question": one.text, "hops": hops, "query": "Where was she born?", "k": 7} for one in asked]
    wanted = within(
        project,
        [Search(one, one.text) for one in asked] + [Search(one, "Where was she born?", HOPS, k=7) for one in asked],
    )
    assert [server.ids(body) for body in first + later] == wanted
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who founded it?"}]
    chat += [{"role": "assistant", "content": "Ada Brown"}, {"role": "user", "content": [{"text": asked[0].text}]}]
    assert server.ids({"messages": chat}) == within(project, [Search(asked[0], asked[0].text, HOPS)])[0]
    left = server.ids({"question": asked[0].text, "exclude": [*wanted[0][:1], "an id of a deleted passage"]})
    assert wanted[0][0] not in left and left[:2] == wanted[0][1:3]
    frozen = [server.ids({"question": one.text, "model": "frozen"}) for one in asked]
    assert frozen == within(project, [Search(one, one.text) for one in asked], "frozen") != wanted[:6]
    assert server.ask("/search", {"question": "Who?", "model": "frozen"})[1]["version"] == "base"


def test_search_r1_verl_and_skyrl_are_answered_in_their_shapes(project: Path, server: Running) -> None:
    texts = [one.text for one in questions(project)][:2]
    # search_r1/search/retrieval_request.py, verl/tools/utils/search_r1_like_utils.py
    status, told, _ = server.ask("/retrieve", {"queries": texts, "topk": 3, "return_scores": True})
    assert status == 200 and [len(hits) for hits in told["result"]] == [3, 3]
    for hits in told["result"]:
        for hit in hits:
            title, _, text = hit["document"]["contents"].partition("\n")  # as verl's _passages2string reads it
            assert title == f'"{hit["document"]["title"]}"' and text == hit["document"]["text"]
            assert isinstance(hit["score"], float) and hit["document"]["id"]
    # Search-R1 may leave scores out, and then sends documents alone
    _, plain, _ = server.ask("/retrieve", {"queries": texts, "topk": 3})
    assert plain == {"result": [[hit["document"] for hit in hits] for hits in told["result"]]}
    # SkyRL's server (examples/train/search/retriever/retrieval_server.py) takes one query
    _, one, _ = server.ask("/retrieve", {"query": texts[0], "topk": 3, "return_scores": True})
    assert one == {"result": told["result"][:1]}
    assert server.ask("/retrieve", {"queries": []})[1] == {"result": []}
    client = RetrieveClient(f"http://127.0.0.1:{server.port}/retrieve", 30.0)
    found = client(texts, 3)
    assert [[p.id for p in hits] for hits in found] == [[p["document"]["id"] for p in h] for h in told["result"]]
    assert len(client(["a"] * 2600, 1)) == 2600  # the rollouts of a step of Search-R1
    client._client.close()  # a pipeline keeps its connection for as long as it runs


def test_embed_gives_the_vectors_of_both_towers(project: Path, server: Running) -> None:
    import numpy as np

    from harr.corpus.passages import Passages
    from harr.corpus.vectors import Vectors

    passages = Passages.open(project / PLACES.corpus)
    _, told, _ = server.ask("/embed", {"inputs": passages.contents(0, 5), "tower": "document"})
    kept = Vectors.of(passages, project / PLACES.vectors).take(np.arange(5))
    np.testing.assert_allclose(told["vectors"], kept, atol=1e-5)
    _, state, _ = server.ask("/embed", {"inputs": "Query: x"})
    assert len(state["vectors"][0]) == kept.shape[1] and state["vectors"][0] != told["vectors"][0]


@pytest.mark.parametrize(
    ("path", "body", "status", "line"),
    [
        ("/search", b'{"question": ', 422, "Invalid JSON: EOF while parsing"),
        ("/search", b"[" * 100_000, 422, "Invalid JSON: recursion limit exceeded"),
        ("/search", b'{"messages":' + b'[{"content":[' * 50_000, 422, "Invalid JSON: recursion limit exceeded"),
        ("/search", b"\xff\xfe", 422, "Invalid JSON"),
        ("/search", {"question": "x" * 1_000_000}, 422, "question: String should have at most 20000 characters"),
        ("/search", {"question": "x" * 5_000_000}, 413, "at most 4194304 are read"),
        ("/search", {"question": "\ud800"}, 422, "Invalid JSON: unexpected end of hex escape"),
        ("/search", {}, 422, "nothing is asked; send a question, a query or messages"),
        ("/search", {"question": "x", "k": 10**30}, 422, "k: "),
        ("/search", {"question": "x", "k": -1}, 422, "k: Input should be greater than or equal to 1"),
        ("/search", {"question": "x", "hopps": []}, 422, "hopps: Extra inputs are not permitted"),
        ("/search", {"messages": [{"role": "system", "content": "x"}]}, 422, "no message is the user's"),
        ("/retrieve", {"queries": ["x"] * 10_000}, 422, "queries: List should have at most 4096 items"),
        ("/retrieve", {"queries": ["x"], "query": "x"}, 422, "send either queries, a list, or query, a text"),
        ("/retrieve", {"queries": ["x"] * 4000, "topk": 100}, 422, "queries times topk is more than 100,000"),
        ("/retrieve", {"queries": [7]}, 422, "queries.0: Input should be a valid string"),
        ("/embed", {"inputs": [["x"]]}, 422, "inputs"),
        ("/mcp", b"[" * 100_000, 400, "Invalid JSON: recursion limit exceeded"),
    ],
)
def test_a_hostile_body_is_refused_in_a_line(server: Running, path: str, body: Any, status: int, line: str) -> None:
    accepts = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    found, told, _ = server.ask(path, body, headers=accepts)
    text = json.dumps(told, ensure_ascii=False)
    assert found == status and line in text and "\\n" not in text and len(text) < 1000
    assert server.ids({"question": "Who?"})


def test_strange_texts_are_searched(server: Running) -> None:
    for text in ("\x00", "  ", "\u202e\U0001f600", "a" * 20_000, "</information>"):
        assert server.ids({"query": text})


def test_only_loopback_names_are_answered_and_methods_are_told(server: Running) -> None:
    status, told, _ = server.get("/health", Host=f"evil.example:{server.port}")
    assert status == 421 and told == {"error": f"this server is not called evil.example:{server.port}; ask 127.0.0.1"}
    assert server.get("/health", Host=f"localhost:{server.port}")[0] == 200
    for path, status, line in (("/search", 405, "Method Not Allowed"), ("/nothing", 404, "Not Found")):
        found, told, _ = server.get(path)
        assert found == status and told == {"error": f"GET {path}: {line}; the routes are in docs/serve.md"}


def test_the_page_works_offline(server: Running) -> None:
    status, page, headers = server.get("/")
    assert status == 200 and "default-src 'none'" in headers["Content-Security-Policy"]
    assert "http://" not in page and "https://" not in page and "src=" not in page
    assert 'ask("frozen")' in page and 'ask("champion")' in page and "innerHTML" not in page


def test_figures_for_prometheus(server: Running) -> None:
    server.ids({"question": "Who?"})
    status, text, _ = server.get("/metrics")
    assert status == 200 and 'harr_requests_total{route="/search",status="200"}' in text
    assert f'harr_model{{version="{server.get("/health")[1]["version"]}"}} 1.0' in text
    assert "harr_batch_size_bucket" in text and "harr_waiting 0.0" in text


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
def test_a_client_of_mcp_finds_what_the_policy_finds(project: Path, server: Running, over: str) -> None:
    asked = questions(project)[0]
    hops = [{"query": "Who founded it?", "answer": "Ada Brown"}]
    arguments = {"query": "Where was she born?", "question": asked.text, "hops": hops}
    told = asyncio.run(_over_http(server.port, arguments) if over == "http" else _over_stdio(project, arguments))
    assert not told.isError
    found = [passage["id"] for passage in told.structuredContent["passages"]]
    assert found == within(project, [Search(asked, "Where was she born?", HOPS)])[0]


def test_a_token_is_asked_and_a_full_queue_is_a_clear_503(project: Path) -> None:
    refused = ended(project, "--host", "0.0.0.0")
    assert refused.returncode == 1 and refused.stdout == ""
    assert "--host 0.0.0.0 is reached from other machines, and $HARR_SERVE_TOKEN holds no token" in refused.stderr
    options = ("--model", str(RETRIEVER), "--host", "0.0.0.0", "--room", "64")
    with started(project, *options, HARR_SERVE_TOKEN="sesame") as server:
        assert server.get("/health", Host="harr.example")[0] == server.get("/")[0] == 200
        for headers in ({}, {"Authorization": "Bearer sesam"}, {"Authorization": "sesame"}):
            for path in ("/search", "/retrieve", "/embed", "/mcp"):
                assert server.ask(path, {"question": "Who?"}, headers=headers)[0] == 401
            assert server.get("/metrics", **headers)[0] == 401
        inside = {"Authorization": "Bearer sesame"}
        assert server.ask("/search", {"question": "Who?"}, headers=inside)[0] == 200
        assert "sesame" not in server.told
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


def test_the_champion_is_followed_without_a_failed_request_and_outlives_a_kill(project: Path) -> None:
    client = open_registry(f"sqlite:///{project}/mlflow.db")
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
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 0
    # What was asked is answered; a client that asks a server that is gone is told so by its machine.
    gone = (ConnectionError, http.client.BadStatusLine)
    assert all(isinstance(one, gone) for one in load.failures), load.failures


def test_a_port_that_is_taken_is_one_line(project: Path, server: Running) -> None:
    done = ended(project, "--port", str(server.port))
    assert done.returncode == 1 and f"--host 127.0.0.1 --port {server.port} cannot be had" in done.stderr
    assert "Traceback" not in done.stderr
