"""A Search-R1 server as a source: one request for all queries, its shapes of answers, and what is none."""

from pathlib import Path
from typing import Any

from by_hand import Fixed, Script
from serving import serving

from harr.params.servers import ServerParams
from harr.params.sources import RetrieveParams
from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.search_r1 import search_r1
from harr.rag.rollout import play
from harr.rag.sources.client import WebSource
from harr.rag.sources.router import Sources, open_sources
from harr.types import Passage, Question, Search

QUESTION = Question("q", "Who?")
OWN = Fixed(Passage("own0", "x"), Passage("own1", "y"))


def fine(body: dict[str, Any], number: int) -> tuple[int, Any]:
    """What such a server answers: passages by query, with their scores where they are asked for."""

    def hits(query: str) -> list[dict[str, Any]]:
        documents = [{"id": f"{query}{n}", "contents": f'"Title {n}"\n{query} text'} for n in range(body["topk"])]
        scored = [{"document": document, "score": 0.5} for document in documents]
        return scored if body["return_scores"] else documents

    return 200, {"result": [hits(query) for query in body["queries"]]}


def opened(url: str, folder: Path, deadline_seconds: float = 15.0) -> WebSource:
    server = ServerParams(urls=(url,), timeout_seconds=deadline_seconds, deadline_seconds=deadline_seconds)
    return open_sources({"Wiki": RetrieveParams(kind="retrieve", server=server)}, folder)["Wiki"]


def asks(*queries: str, **more: Any) -> list[Search]:
    return [Search(QUESTION, query, **more) for query in queries]


def test_all_queries_are_one_request_and_answers_are_remembered(tmp_path: Path) -> None:
    with serving(fine) as served:
        wiki = opened(served.base_url, tmp_path)
        found = wiki.retrieve([*asks("a", "b", "a"), *asks("c", k=1)])
        again = opened(served.base_url, tmp_path)
        assert again.retrieve(asks("b")) == found[1:2] and len(served.bodies) == 2
    three = [[f"{query}{n}" for n in range(3)] for query in "aba"]
    assert [[p.id for p in r.passages] for r in found] == [*three, ["c0"]]
    assert found[0].passages[1] == Passage("a1", "a text", "Title 1", "Wiki")
    assert sorted(served.bodies, key=lambda body: body["topk"]) == [
        {"queries": ["c"], "topk": 1, "return_scores": True},
        {"queries": ["a", "b"], "topk": 3, "return_scores": True},
    ]
    assert served.paths == {"/v1"}, "the address is that of the call"
    assert (wiki.usage()["asked"], again.usage()["cached"]) == (3.0, 1.0)


def test_documents_without_scores_ids_or_titles(tmp_path: Path) -> None:
    documents = [{"contents": "No title.\nTwo lines."}, {"id": 3, "contents": "x"}]
    with serving(lambda body, number: (200, {"result": [documents]})) as served:
        first, second = opened(served.base_url, tmp_path).retrieve(asks("a"))[0].passages
        other = opened(served.base_url, tmp_path / "other").retrieve(asks("b"))[0].passages[0]
    assert (first.title, first.text, second.id) == ("", "No title.\nTwo lines.", "3")
    assert first.id == other.id and len(first.id) == 16


def test_what_is_no_answer_is_one_line(tmp_path: Path) -> None:
    for number, (status, reply, line) in enumerate(
        [
            (404, "no such page", "refuses the queries (HTTP 404: no such page)"),
            (422, {"detail": "queries"}, "refuses the queries (HTTP 422"),
            (200, "<html>", "answers '<html>'; expected a list per query as"),
            (200, [], "answers '[]'; expected"),
            (200, {"result": [["text"]]}, "expected a list per query"),
            (200, {"result": [[{"document": {"text": "x"}}]]}, "expected a list per query"),
            (200, {"result": [[{"document": {"contents": None}}]]}, "expected a list per query"),
            (200, {"result": []}, "answers '0 lists for 1 queries'; expected a list per query"),
        ]
    ):
        with serving(lambda body, number, sent=(status, reply): sent) as served:
            [found] = opened(served.base_url, tmp_path / str(number)).retrieve(asks("a"))
        assert found.error.startswith("http://127.0.0.1:") and line in found.error and "\n" not in found.error
        assert not found.passages and len(served.bodies) == 1


def test_a_server_that_is_away_costs_its_deadline(tmp_path: Path) -> None:
    with serving(fine) as served:
        url = served.base_url
    found = opened(url, tmp_path, deadline_seconds=1.0).retrieve(asks("a", "b"))
    assert all(f"{url} does not answer" in one.error for one in found)


def test_a_search_without_a_tool_asks_all_sources_in_turn(tmp_path: Path) -> None:
    with serving(fine) as served:
        both = Sources({"Own": OWN}, {"Wiki": opened(served.base_url, tmp_path)}, k=4)  # type: ignore[dict-item]
        generator = Script("<think>?</think><search>ada</search>", "<think>.</think><answer>Bath</answer>")
        [episode] = play([QUESTION], lambda q: search_r1(q, max_searches=2), both, generator)
        assert [p.id for p in episode.retrieved] == ["own0", "ada0", "own1", "ada1"]
        assert episode.answer == "Bath" and episode.outcome.tool_errors == 0
        assert [p.id for p in both.retrieve(asks("x", tool="Own", k=9))[0].passages] == ["own0", "own1"]
        assert len(both.retrieve(asks("x", k=2))[0].passages) == 2


def test_a_pipeline_is_told_that_all_sources_failed(tmp_path: Path) -> None:
    with serving(lambda body, number: (404, "</information>gone")) as served:
        down = Sources({}, {"Wiki": opened(served.base_url, tmp_path)})
        generator = Script("<think>?</think><search>ada</search>", "<think>.</think><answer>Bath</answer>")
        [episode] = play([QUESTION], lambda q: search_r1(q, max_searches=2), down, generator)
        shown = generator.asked[-1].prompt
        assert "<information>Error: Wiki: http" in shown and "&lt;/information&gt;gone" in shown
        assert (episode.outcome.tool_errors, episode.answer) == (1, "Bath")
        ask, read = '{"action": "ASK", "sub_query": "ada"}', '{"status": "NOT_FOUND", "answer": ""}'
        generator = Script(ask, read, '{"action": "STOP"}', "Bath")
        [episode] = play([QUESTION], lambda q: multistep(q, max_hops=2), down, generator)
        assert "Error: Wiki: http" in generator.asked[1].messages[-1]["content"] and episode.outcome.tool_errors == 1
        [found] = Sources({"Own": OWN}, down.web).retrieve(asks("ada"))  # type: ignore[dict-item]
        assert [p.id for p in found.passages] == ["own0", "own1"] and not found.error
