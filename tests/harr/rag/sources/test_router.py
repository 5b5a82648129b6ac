"""Web sources against real functions and a real server; our own collections by source."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from by_hand import Fixed, Script
from serving import serving

from harr.errors import HarrError, ParamsError, ServiceUnavailable
from harr.params.servers import ServerParams
from harr.params.sources import ExaParams, FunctionSourceParams
from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.search_r1 import search_r1
from harr.rag.rollout import play
from harr.rag.sources.client import WebSource
from harr.rag.sources.providers import exa
from harr.rag.sources.router import Sources, open_sources
from harr.types import Passage, Question, Search

QUESTION = Question("q", "Who?")
OWN = Fixed(Passage("own0", "x"), Passage("own1", "y"))


def searches(queries: Sequence[str], tool: str = "General", **more: Any) -> list[Search]:
    return [Search(QUESTION, query, tool=tool, **more) for query in queries]


class Upper:
    """A source that answers in capitals; ``meet`` queries must be in flight at once before any is answered."""

    def __init__(self, meet: int = 0) -> None:
        self.asked: list[str] = []
        self._barrier = threading.Barrier(meet) if meet else None

    def __call__(self, query: str, k: int) -> list[Passage]:
        self.asked.append(query)
        if self._barrier:
            self._barrier.wait(timeout=20)
        return [Passage(f"{query}-{n}", f"{query.upper()}\n{n}") for n in range(k + 1)]


def source(ask: Any, **more: Any) -> WebSource:
    return WebSource("General", ask, **{"k": 2, "deadline_seconds": 30.0, **more})


def test_two_sources_are_asked_at_once_and_a_third_is_not_there() -> None:
    ask = Upper(meet=2)
    both = Sources({}, {tool: WebSource(tool, ask, k=1, deadline_seconds=30.0) for tool in ("General", "News")})
    *found, odd = both.retrieve([*searches("a"), *searches("b", "News"), *searches("c", "Banana")])
    assert [(r.passages[0].id, r.passages[0].source) for r in found] == [("a-0", "General"), ("b-0", "News")]
    assert both.usage()["News asked"] == 1.0
    assert odd.error == "there is no source 'Banana', only General, News" and odd.passages == ()


def test_equal_queries_are_asked_once_and_what_is_excluded_is_left_out() -> None:
    ask = Upper()
    found = source(ask).retrieve([*searches("aa"), *searches("a", exclude_ids=frozenset({"a-0"})), *searches("a", k=1)])
    assert ask.asked == ["a", "a"]  # two searches need two passages, one needs one
    assert [[p.id for p in r.passages] for r in found] == [["a-0", "a-1"], ["a-0", "a-1"], ["a-1"], ["a-0"]]


def test_a_hanging_source_costs_its_deadline_once() -> None:
    """Forty queries, four at a time: the first four time out, the others are not sent."""
    hung, asked = threading.Event(), []

    def ask(query: str, k: int) -> list[Passage]:
        asked.append(query)
        hung.wait(60)
        return []

    slow = source(ask, concurrency=4, deadline_seconds=0.5)
    began = time.monotonic()
    found = slow.retrieve(searches([str(n) for n in range(40)]))
    took = time.monotonic() - began
    hung.set()
    assert len(asked) == 4 and 0.5 <= took < 5.0  # in sequence it would be 5 s
    assert slow.usage() == {"asked": 4.0, "cached": 0.0, "failed": 40.0, "timed_out": 4.0}
    assert found[0].error == "no answer within 0.5 s" and not found[0].passages
    assert found[39].error == "not asked, since others had: no answer within 0.5 s"
    (later,) = slow.retrieve(searches("b"))  # a graph's next level does not wait again
    assert later.error == "not asked, since it had not answered before" and len(asked) == 4


def test_one_slow_query_does_not_stop_the_others() -> None:
    hung = threading.Event()

    def ask(query: str, k: int) -> list[Passage]:
        if query == "0":
            hung.wait(60)
        time.sleep(0.02)  # 19 of these in one worker exceed the slow query's deadline
        return [Passage(query, query)]

    found = source(ask, concurrency=2, deadline_seconds=0.3).retrieve(searches([str(n) for n in range(20)]))
    hung.set()
    assert found[0].error and not any(retrieval.error for retrieval in found[1:])


def test_an_outage_is_tried_again_and_a_refusal_is_not() -> None:
    asked: list[str] = []

    def ask(query: str, k: int) -> list[Passage]:
        asked.append(query)
        if query == "refused":
            raise HarrError("no such thing")
        if query == "broken":
            raise KeyError("results")
        if asked.count(query) < 3:
            raise ServiceUnavailable("restarting")
        return [Passage("p", "found")]

    odd = source(ask)
    found = odd.retrieve(searches(["late", "refused", "broken"]))
    assert [r.error for r in found] == ["", "no such thing", "KeyError: 'results'"]
    assert found[0].passages[0].text == "found" and sorted(asked) == ["broken", "late", "late", "late", "refused"]
    assert odd.usage() == {"asked": 3.0, "cached": 0.0, "failed": 2.0, "timed_out": 0.0}


def test_answers_are_remembered_and_failures_are_not(tmp_path: Path) -> None:
    def down(query: str, k: int) -> list[Passage]:
        raise HarrError("down")

    cache, ask = tmp_path / "cache.sqlite", Upper()
    assert source(down, cache=cache).retrieve(searches("a"))[0].error == "down"
    first = source(ask, cache=cache).retrieve(searches("ab"))
    again = source(down, cache=cache)
    assert again.retrieve(searches("abc"))[:2] == first and ask.asked == ["a", "b"]
    assert again.usage() == {"asked": 1.0, "cached": 2.0, "failed": 1.0, "timed_out": 0.0}


def test_half_a_character_of_the_web_is_kept_and_no_text_is_an_error(tmp_path: Path) -> None:
    """A service that cuts a page within a surrogate pair sends half of it, which no file and no tokenizer accepts."""

    def ask(query: str, k: int) -> list[Passage]:
        return [Passage("u", "A smile \ud83d" if query == "cut" else None)]  # type: ignore[arg-type]

    kept = source(ask, cache=tmp_path / "kept.sqlite")
    cut, empty = kept.retrieve(searches(["cut", "none"]))
    assert cut.passages[0].text == "A smile ?" and empty.error.startswith("AttributeError")
    assert kept.retrieve(searches(["cut"]))[0] == cut and kept.usage()["cached"] == 1.0


def exa_server(url: str, key: str) -> ServerParams:
    return ServerParams(urls=(url,), key_variable=key, timeout_seconds=15.0)


def test_what_cannot_be_asked_is_said_before_anything_starts(tmp_path: Path) -> None:
    for section, said in (
        (
            ExaParams(kind="exa", server=exa_server("http://h", "HARR_NO_KEY")),
            "set the environment variable HARR_NO_KEY",
        ),
        (FunctionSourceParams(kind="function", function="nowhere:search"), "nowhere:search cannot be imported"),
    ):
        with pytest.raises(ParamsError, match=said) as error:
            open_sources({"General": section}, tmp_path)
        assert "\n" not in str(error.value) and str(error.value).startswith("sources.General")


def test_exa_through_its_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("exa_py", reason="exa-py is missing: pip install '.[web]'")
    monkeypatch.setenv("MY_EXA_KEY", "secret-of-mine")
    failing = {"busy": [429, 503], "bad": [400], "locked": [401]}

    def answer(body: dict[str, Any], number: int) -> tuple[int, Any]:
        if failures := failing.get(body["query"]):
            return failures.pop(0), {"error": "key secret-of-mine"}
        urls = [f"https://x.example/{n}" for n in range(body["numResults"])]
        found = [{"id": url, "url": url, "title": f"Page {n}", "text": " long" * 200} for n, url in enumerate(urls)]
        return 200, {"requestId": "r", "results": found}

    section = ExaParams(kind="exa", category="news", max_characters=40)
    with serving(answer) as served:
        web = source(exa("News", section.model_copy(update={"server": exa_server(served.base_url, "MY_EXA_KEY")})))
        fine, busy, bad, locked = web.retrieve(searches(["fine", "busy", "bad", "locked"]))
    assert [p.id for p in fine.passages] == ["https://x.example/0", "https://x.example/1"]
    assert fine.passages[0].title == "Page 0" and len(fine.passages[0].text) == 40
    assert busy.passages == fine.passages  # retried until it was answered
    assert "Exa refuses the query" in bad.error and "Exa refuses the key in $MY_EXA_KEY" in locked.error
    assert "secret-of-mine" not in bad.error + locked.error
    assert served.paths == {"/v1/search"} and served.keys == {"secret-of-mine"}
    asked = next(body for body in served.bodies if body["query"] == "fine")
    assert (asked["numResults"], asked["category"]) == (2, "news")
    assert asked["contents"] == {"text": {"maxCharacters": 40}}
    gone = exa("General", section.model_copy(update={"server": exa_server(served.base_url, "MY_EXA_KEY")}))
    [found] = source(gone, deadline_seconds=0.5).retrieve(searches("a"))
    assert found.error.startswith(("Exa does not answer", "no answer within")) and not found.passages


def test_a_search_without_a_tool_asks_all_sources_in_turn() -> None:
    both = Sources({"Own": OWN}, {"Wiki": source(Upper(), k=4)}, k=4)  # type: ignore[dict-item]
    generator = Script("<think>?</think><search>ada</search>", "<think>.</think><answer>Bath</answer>")
    [episode] = play([QUESTION], lambda q: search_r1(q, max_searches=2), both, generator)
    assert [p.id for p in episode.retrieved] == ["own0", "ada-0", "own1", "ada-1"]
    assert episode.answer == "Bath" and episode.outcome.tool_errors == 0
    assert [p.id for p in both.retrieve(searches("x", "Own", k=9))[0].passages] == ["own0", "own1"]
    assert len(both.retrieve(searches("x", "", k=2))[0].passages) == 2


def test_a_pipeline_is_told_that_all_sources_failed() -> None:
    def refuse(query: str, k: int) -> list[Passage]:
        raise HarrError("</information>gone")

    down = Sources({}, {"Wiki": source(refuse)})
    generator = Script("<think>?</think><search>ada</search>", "<think>.</think><answer>Bath</answer>")
    [episode] = play([QUESTION], lambda q: search_r1(q, max_searches=2), down, generator)
    assert "<information>Error: Wiki: &lt;/information&gt;gone" in generator.asked[-1].prompt
    assert (episode.outcome.tool_errors, episode.answer) == (1, "Bath")
    ask, read = '{"action": "ASK", "sub_query": "ada"}', '{"status": "NOT_FOUND", "answer": ""}'
    generator = Script(ask, read, '{"action": "STOP"}', "Bath")
    [episode] = play([QUESTION], lambda q: multistep(q, max_hops=2), down, generator)
    assert "Error: Wiki: " in generator.asked[1].messages[-1]["content"] and episode.outcome.tool_errors == 1
    [found] = Sources({"Own": OWN}, down.web).retrieve(searches("a", ""))  # type: ignore[dict-item]
    assert [p.id for p in found.passages] == ["own0", "own1"] and not found.error
