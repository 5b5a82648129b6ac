"""A Search-R1 server as a source: one request for all queries, its shapes of answers, and what is none."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harr.params.sources import RetrieveParams
from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.search_r1 import search_r1
from harr.rag.rollout import play
from harr.rag.sources.client import WebSource
from harr.rag.sources.router import Sources, open_sources
from harr.types import Generate, Passage, Question, Retrieval, Search

QUESTION = Question("q", "Who?")
Answer = Callable[[dict[str, Any]], tuple[int, Any]]


class Server:
    """Answers ``POST /retrieve`` by the function ``answer``; what it is asked stays in ``asked``."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer: Answer = lambda body: (200, {"result": [hits(query, body) for query in body["queries"]]})


def hits(query: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    documents = [{"id": f"{query}{n}", "contents": f'"Title {n}"\n{query} text'} for n in range(body["topk"])]
    scored = [{"document": document, "score": 0.5} for document in documents]
    return scored if body["return_scores"] else documents


@pytest.fixture
def server() -> Iterator[tuple[Server, str]]:
    known = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known.asked.append({"path": self.path, **body})
            status, reply = known.answer(body)
            payload = reply.encode() if isinstance(reply, str) else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: Any) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield known, f"http://127.0.0.1:{http.server_port}/retrieve"
    http.shutdown()
    http.server_close()
    thread.join()


def opened(url: str, folder: Path, **more: Any) -> WebSource:
    return open_sources({"Wiki": RetrieveParams(kind="retrieve", base_url=url, **more)}, folder)["Wiki"]


def asks(*queries: str, **more: Any) -> list[Search]:
    return [Search(QUESTION, query, **more) for query in queries]


def test_all_queries_are_one_request_and_answers_are_remembered(server: tuple[Server, str], tmp_path: Path) -> None:
    known, url = server
    wiki = opened(url, tmp_path)
    found = wiki.retrieve([*asks("a", "b", "a"), *asks("c", k=1)])
    assert [[p.id for p in r.passages] for r in found] == [
        ["a0", "a1", "a2"],
        ["b0", "b1", "b2"],
        ["a0", "a1", "a2"],
        ["c0"],
    ]
    assert found[0].passages[1] == Passage("a1", "a text", "Title 1", "Wiki")
    assert sorted(known.asked, key=lambda body: body["topk"]) == [
        {"path": "/retrieve", "queries": ["c"], "topk": 1, "return_scores": True},
        {"path": "/retrieve", "queries": ["a", "b"], "topk": 3, "return_scores": True},
    ]
    again = opened(url, tmp_path)
    assert again.retrieve(asks("b")) == found[1:2] and len(known.asked) == 2
    assert (wiki.usage()["asked"], again.usage()["cached"]) == (3.0, 1.0)


def test_documents_without_scores_ids_or_titles(server: tuple[Server, str], tmp_path: Path) -> None:
    known, url = server
    known.answer = lambda body: (200, {"result": [[{"contents": "No title.\nTwo lines."}, {"id": 3, "contents": "x"}]]})
    [found] = opened(url, tmp_path).retrieve(asks("a"))
    first, second = found.passages
    assert (first.title, first.text, second.id) == ("", "No title.\nTwo lines.", "3")
    assert first.id == opened(url, tmp_path / "other").retrieve(asks("b"))[0].passages[0].id and len(first.id) == 16


def test_a_server_that_restarts_is_asked_again(server: tuple[Server, str], tmp_path: Path) -> None:
    known, url = server
    fine, left = known.answer, [503, 429]
    known.answer = lambda body: (left.pop(0), "later") if left else fine(body)
    [found] = opened(url, tmp_path).retrieve(asks("a"))
    assert len(found.passages) == 3 and len(known.asked) == 3


@pytest.mark.parametrize(
    ("status", "reply", "line"),
    [
        (404, "no such page", "refuses the queries (HTTP 404: no such page)"),
        (422, {"detail": "queries"}, "refuses the queries (HTTP 422"),
        (200, "<html>", "answers '<html>'; expected a list per query as"),
        (200, [], "answers '[]'; expected"),
        (200, {"result": [["text"]]}, "expected a list per query"),
        (200, {"result": [[{"document": {"text": "x"}}]]}, "expected a list per query"),
        (200, {"result": [[{"document": {"contents": None}}]]}, "expected a list per query"),
        (200, {"result": []}, "answers '0 lists for 1 queries'; expected a list per query"),
    ],
)
def test_what_is_no_answer_is_one_line(
    server: tuple[Server, str], status: int, reply: Any, line: str, tmp_path: Path
) -> None:
    known, url = server
    known.answer = lambda body: (status, reply)
    [found] = opened(url, tmp_path).retrieve(asks("a"))
    assert found.error.startswith("http://127.0.0.1:") and line in found.error and "\n" not in found.error
    assert not found.passages and len(known.asked) == 1


def test_a_server_that_is_away_costs_its_deadline_and_says_no_password(tmp_path: Path) -> None:
    found = opened("http://127.0.0.1:9/retrieve", tmp_path, deadline_seconds=0.6).retrieve(asks("a", "b"))
    assert all("http://127.0.0.1:9/retrieve does not answer" in one.error for one in found)


class Shelf:
    """Our own collection: always the same passages."""

    def retrieve(self, searches: list[Search]) -> list[Retrieval]:
        return [Retrieval((Passage("own0", "x"), Passage("own1", "y"))) for _ in searches]


class Writer:
    """A model that searches once and then answers; what it was shown stays in ``shown``."""

    def __init__(self, *replies: str) -> None:
        self.replies, self.shown = list(replies), [""]

    def complete(self, requests: list[Generate]) -> list[str]:
        self.shown += [request.prompt or request.messages[-1]["content"] for request in requests]
        return [self.replies.pop(0) for _ in requests]


def test_a_search_without_a_tool_asks_all_sources_in_turn(server: tuple[Server, str], tmp_path: Path) -> None:
    _, url = server
    both = Sources({"Own": Shelf()}, {"Wiki": opened(url, tmp_path)}, k=4)  # type: ignore[dict-item]
    writer = Writer("<think>?</think><search>ada</search>", "<think>.</think><answer>Bath</answer>")
    [episode] = play([QUESTION], lambda q: search_r1(q, max_searches=2), both, writer)  # type: ignore[arg-type]
    assert [p.id for p in episode.retrieved] == ["own0", "ada0", "own1", "ada1"]
    assert episode.answer == "Bath" and episode.outcome.tool_errors == 0
    assert [p.id for p in both.retrieve(asks("x", tool="Own", k=9))[0].passages] == ["own0", "own1"]
    assert len(both.retrieve(asks("x", k=2))[0].passages) == 2


def test_a_pipeline_is_told_that_all_sources_failed(server: tuple[Server, str], tmp_path: Path) -> None:
    known, url = server
    known.answer = lambda body: (404, "</information>gone")
    down = Sources({}, {"Wiki": opened(url, tmp_path)})
    writer = Writer("<think>?</think><search>ada</search>", "<think>.</think><answer>Bath</answer>")
    [episode] = play([QUESTION], lambda q: search_r1(q, max_searches=2), down, writer)  # type: ignore[arg-type]
    assert "<information>Error: Wiki: http" in writer.shown[-1] and "&lt;/information&gt;gone" in writer.shown[-1]
    assert (episode.outcome.tool_errors, episode.answer) == (1, "Bath")
    ask, read = '{"action": "ASK", "sub_query": "ada"}', '{"status": "NOT_FOUND", "answer": ""}'
    writer = Writer(ask, read, '{"action": "STOP"}', "Bath")
    [episode] = play([QUESTION], lambda q: multistep(q, max_hops=2), down, writer)  # type: ignore[arg-type]
    assert "Error: Wiki: http" in writer.shown[2] and episode.outcome.tool_errors == 1
    mixed = Sources({"Own": Shelf()}, down.web)  # type: ignore[dict-item]
    [found] = mixed.retrieve(asks("ada"))
    assert [p.id for p in found.passages] == ["own0", "own1"] and not found.error
