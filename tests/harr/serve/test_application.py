"""What the server answers, to whom, and what it refuses; failures behind it, and clients that never finish."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from harr.corpus.passages import Passages, read_questions
from harr.corpus.vectors import Vectors
from harr.errors import DamagedFile, HarrError, ParamsError, ServiceUnavailable
from harr.serve.application import application
from harr.serve.follower import Follower
from harr.serve.searcher import Answer, Searcher
from harr.serve.service import RetrieverService
from harr.types import Hop, Question, Search
from tasks.paths import PLACES, QUESTIONS, RETRIEVER

HOPS = (Hop("Who founded it?", "Ada Brown", "FOUND"),)
Within = Callable[..., list[list[str]]]


@pytest.fixture(scope="module")
def server(project: Path) -> Iterator[TestClient]:
    searcher = Searcher(project, "float32")
    follower = Follower(str(project / RETRIEVER), project, project / "cache", searcher.load, searcher.has_changed)
    follower.start()
    service = RetrieverService(searcher, follower, room=10_000)
    with TestClient(application(service), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def questions(project: Path) -> list[Question]:
    return read_questions(project / QUESTIONS / "test.jsonl")[:6]


def ids(server: TestClient, body: dict[str, Any]) -> list[str]:
    reply = server.post("/search", json=body)
    assert reply.status_code == 200, reply.text
    return [passage["id"] for passage in reply.json()["passages"]]


class Failing(Searcher):
    def __init__(self, error: HarrError) -> None:
        super().__init__(Path())
        self._error = error

    def answer(self, asks: object) -> list[Answer]:
        raise self._error


def test_search_finds_what_the_policy_finds(server: TestClient, within: Within, questions: list[Question]) -> None:
    asked = questions
    hops = [{"query": hop.query, "answer": hop.answer, "status": hop.status} for hop in HOPS]
    first = [{"question": one.text} for one in asked]
    later = [{"question": one.text, "hops": hops, "query": "Where was she born?", "k": 7} for one in asked]
    wanted = within(
        [Search(one, one.text) for one in asked] + [Search(one, "Where was she born?", HOPS, k=7) for one in asked]
    )
    assert [ids(server, body) for body in first + later] == wanted
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who founded it?"}]
    chat += [{"role": "assistant", "content": "Ada Brown"}, {"role": "user", "content": [{"text": asked[0].text}]}]
    assert ids(server, {"messages": chat}) == within([Search(asked[0], asked[0].text, HOPS)])[0]
    left = ids(server, {"question": asked[0].text, "exclude": [*wanted[0][:1], "an id of a deleted passage"]})
    assert wanted[0][0] not in left and left[:2] == wanted[0][1:3]
    frozen = [ids(server, {"question": one.text, "model": "frozen"}) for one in asked]
    assert frozen == within([Search(one, one.text) for one in asked], "frozen") != wanted[:6]
    assert server.post("/search", json={"question": "Who?", "model": "frozen"}).json()["version"] == "base"


def test_search_r1_verl_and_skyrl_are_answered_in_their_shapes(server: TestClient, questions: list[Question]) -> None:
    texts = [one.text for one in questions][:2]
    # search_r1/search/retrieval_request.py, verl/tools/utils/search_r1_like_utils.py
    answer = server.post("/retrieve", json={"queries": texts, "topk": 3, "return_scores": True}).json()
    assert [len(hits) for hits in answer["result"]] == [3, 3]
    for hits in answer["result"]:
        for hit in hits:
            title, _, text = hit["document"]["contents"].partition("\n")  # as verl's _passages2string reads it
            assert title == f'"{hit["document"]["title"]}"' and text == hit["document"]["text"]
            assert isinstance(hit["score"], float) and hit["document"]["id"]
    # Search-R1 may omit scores, and then sends only documents
    plain = server.post("/retrieve", json={"queries": texts, "topk": 3})
    assert plain.json() == {"result": [[hit["document"] for hit in hits] for hits in answer["result"]]}
    # SkyRL's server (examples/train/search/retriever/retrieval_server.py) takes one query
    one = server.post("/retrieve", json={"query": texts[0], "topk": 3, "return_scores": True})
    assert one.json() == {"result": answer["result"][:1]}
    assert server.post("/retrieve", json={"queries": []}).json() == {"result": []}
    many = server.post("/retrieve", json={"queries": ["a"] * 2600, "topk": 1})
    assert len(many.json()["result"]) == 2600  # the rollouts of a step of Search-R1


def test_embed_gives_the_vectors_of_both_towers(project: Path, server: TestClient) -> None:
    passages = Passages.open(project / PLACES.corpus)
    answer = server.post("/embed", json={"inputs": passages.contents(0, 5), "tower": "document"}).json()
    kept = Vectors.of(passages, project / PLACES.vectors).take(np.arange(5))
    np.testing.assert_allclose(answer["vectors"], kept, atol=1e-5)
    state = server.post("/embed", json={"inputs": "Query: x"}).json()
    assert len(state["vectors"][0]) == kept.shape[1] and state["vectors"][0] != answer["vectors"][0]


HOSTILE: list[tuple[str, Any, int, str]] = [
    ("/search", b'{"question": ', 422, "Invalid JSON: EOF while parsing"),
    ("/search", b"[" * 100_000, 422, "Invalid JSON: recursion limit exceeded"),
    ("/search", b'{"messages":' + b'[{"content":[' * 50_000, 422, "Invalid JSON: recursion limit exceeded"),
    ("/search", b"\xff\xfe", 422, "Invalid JSON"),
    ("/search", {"question": "x" * 1_000_000}, 422, "question: String should have at most 20000 characters"),
    ("/search", {"question": "x" * 5_000_000}, 413, "at most 4194304 are read"),
    ("/search", {"question": "\ud800"}, 422, "Invalid JSON: unexpected end of hex escape"),
    ("/search", {}, 422, "nothing is asked; send a question, a query or messages"),
    ("/search", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 422, "nothing is asked"),
    ("/search", {"question": "x", "k": 10**30}, 422, "k: "),
    ("/search", {"question": "x", "k": -1}, 422, "k: Input should be greater than or equal to 1"),
    ("/search", {"question": "x", "hopps": []}, 422, "hopps: Extra inputs are not permitted"),
    ("/search", {"messages": [{"role": "system", "content": "x"}]}, 422, "no message is the user's"),
    ("/retrieve", {"queries": ["x"] * 10_000}, 422, "queries: List should have at most 4096 items"),
    ("/retrieve", {"queries": ["x"], "query": "x"}, 422, "send either queries, a list, or query, a text"),
    ("/retrieve", {"queries": ["x"] * 4000, "topk": 100}, 422, "queries times topk is more than 100,000"),
    ("/retrieve", {"queries": [7]}, 422, "queries.0: Input should be a valid string"),
    ("/embed", {"inputs": [["x"]]}, 422, "inputs"),
]


def test_a_hostile_body_is_refused_in_a_line(server: TestClient) -> None:
    accepts = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    for path, body, status, line in HOSTILE:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = server.post(path, content=raw, headers=accepts)
        text = json.dumps(reply.json(), ensure_ascii=False)
        assert reply.status_code == status and line in text and "\\n" not in text and len(text) < 1000
    assert ids(server, {"question": "Who?"})


def test_only_loopback_names_are_answered_and_wrong_methods_refused(server: TestClient) -> None:
    reply = server.get("/health", headers={"Host": "evil.example:80"})
    body = {"error": "this server is not called evil.example:80; ask 127.0.0.1"}
    assert (reply.status_code, reply.json()) == (421, body)
    foreign = {"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}
    assert server.post("/search", content='{"question": "Who?"}', headers=foreign).status_code == 403
    assert server.get("/", headers=foreign).status_code == 200, "a link to the page"
    for host in ("LocalHost:80", "127.0.0.2", "[::1]:80"):
        assert server.get("/health", headers={"Host": host}).status_code == 200
    for path, status, line in (("/search", 405, "Method Not Allowed"), ("/nothing", 404, "Not Found")):
        reply = server.get(path)
        body = {"error": f"GET {path}: {line}; the routes are in docs/serve.md"}
        assert (reply.status_code, reply.json()) == (status, body)


def test_the_page_works_offline_and_figures_are_for_prometheus(server: TestClient) -> None:
    page = server.get("/")
    assert page.status_code == 200 and "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert not [part for part in ("http://", "https://", "src=", "innerHTML") if part in page.text]
    assert 'ask("frozen")' in page.text and 'ask("champion")' in page.text
    ids(server, {"question": "Who?"})
    server.get("/mcp")
    server.get("/nothing")
    text = server.get("/metrics").text
    assert 'harr_requests_total{route="/mcp",status="4' in text and 'route="other",status="404"' in text
    assert 'harr_requests_total{route="/search",status="200"}' in text
    assert f'harr_model{{version="{server.get("/health").json()["version"]}"}} 1.0' in text
    assert "harr_batch_size_bucket" in text and "harr_waiting 0.0" in text


def test_a_token_is_asked(project: Path) -> None:
    searcher = Failing(ParamsError("asked"))
    service = RetrieverService(searcher, Follower("x", Path(), Path(), searcher.load), room=10)
    app = application(service, token="sesame", loopback=False)
    with TestClient(app, base_url="http://harr.example") as server:
        assert server.get("/health").status_code == server.get("/").status_code == 200
        for headers in ({}, {"Authorization": "Bearer sesam"}, {"Authorization": "sesame"}):
            for path in ("/search", "/retrieve", "/embed", "/mcp"):
                assert server.post(path, json={"question": "Who?"}, headers=headers).status_code == 401
            assert server.get("/metrics", headers=headers).status_code == 401
        inside = {"Authorization": "Bearer sesame"}
        assert server.post("/search", json={"question": "Who?"}, headers=inside).json() == {"error": "asked"}


@pytest.mark.parametrize(
    ("error", "status"),
    [(ParamsError("wrong"), 422), (ServiceUnavailable("Milvus is away"), 503), (DamagedFile("damaged"), 500)],
)
def test_the_status_says_who_is_to_blame(error: HarrError, status: int) -> None:
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
