"""Every adapter finds what DensePolicy finds, by the real framework; the page that shows them runs."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harr_adapters.openai_tool import TOOL, answer_call

import harr
from harr.arms import ARMS, TRAINED
from harr.builders.players import open_players
from harr.builders.trained import TrainedRetriever
from harr.corpus.passages import read_questions
from harr.params import Params
from harr.types import Hop, Question, Search
from tasks.paths import PLACES, QUESTIONS, RETRIEVER

PAGE = Path(__file__).parents[1] / "README.md"
ASKED = "Where was the founder of Acme born?"
HOPS = [("Who founded Acme?", "Ada Brown"), ("When?", "")]
QUERY = "Where was she born?"


@pytest.fixture(scope="module")
def expected(project: Path) -> list[list[str]]:
    """Ids by DensePolicy: of the query alone, with its history, and two of that."""
    hops = (Hop(*HOPS[0], "FOUND"), Hop(*HOPS[1], "NOT_FOUND"))
    searches = [Search(Question("", QUERY), QUERY)]
    searches += [Search(Question("", ASKED), QUERY, hops, k=k) for k in (0, 2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        with open_players(Params.load(), PLACES, [], candidates="corpus") as player:
            found = player(ARMS[TRAINED], RETRIEVER).retrieve(searches)
    ids = [[passage.id for passage in one.passages] for one in found]
    assert ids[0] != ids[1] and ids[2] == ids[1][:2], "the history changes nothing"
    return ids


@pytest.fixture
def retriever(here: Path, expected: list[list[str]]) -> Iterator[TrainedRetriever]:
    with harr.Retriever.load(RETRIEVER) as opened:
        yield opened


def test_langchain(retriever: TrainedRetriever, expected: list[list[str]]) -> None:
    from harr_adapters.langchain import LangChainRetriever

    runnable = LangChainRetriever(retriever=retriever)
    history = {"question": ASKED, "hops": HOPS}
    found = runnable.invoke(QUERY, **history)
    assert [one.id for one in found] == expected[1] and found[0].metadata["score"] >= found[-1].metadata["score"]
    assert [one.id for one in runnable.invoke(QUERY)] == expected[0]
    assert [one.id for one in LangChainRetriever(retriever=retriever, k=2).invoke(QUERY, **history)] == expected[2]
    assert [one.id for one in runnable.invoke(QUERY, k=2, **history)] == expected[2]
    chain = runnable.bind(**history) | (lambda documents: [one.id for one in documents])
    assert chain.batch([QUERY]) == [expected[1]] == [asyncio.run(chain.ainvoke(QUERY))]


def passages_in(text: str) -> list[str]:
    return [line.partition("] ")[2] for line in text.splitlines()]


def contents(retriever: TrainedRetriever, ids: list[str]) -> list[str]:
    passages = retriever.policy.passages
    return [passages.take([passages.rows_of([one])[one]])[0].content for one in ids]


def test_openai_tool(retriever: TrainedRetriever, expected: list[list[str]]) -> None:
    session = retriever.session(ASKED)
    answer_call(session, '{"query": "Who founded Acme?", "learned": ""}')
    answer_call(session, '{"query": "When?", "learned": "Ada Brown"}')
    found = answer_call(session, f'{{"query": "{QUERY}", "learned": ""}}')
    assert passages_in(found) == contents(retriever, expected[1])
    for wrong in (
        "{",
        "[]",
        '{"query": 1}',
        '{"query": " "}',
        '{"learned": "x"}',
        "null",
        "[" * 100_000,
        '{"query": "\\ud83d"}',
    ):
        assert answer_call(session, wrong).startswith("error: expected")
    parameters = TOOL["function"]["parameters"]
    assert set(parameters["required"]) == set(parameters["properties"]) == {"query", "learned"}


def test_verifiers(retriever: TrainedRetriever, expected: list[list[str]]) -> None:
    """Ten questions load, and a scripted rollout is answered and scored as harr scores it."""
    pytest.importorskip("verifiers", reason="verifiers is missing: it takes no Python 3.14 yet")
    import httpx2
    from harr_adapters.verifiers import SearchEnv
    from openai import AsyncOpenAI
    from verifiers.legacy.clients import OpenAIChatCompletionsClient

    environment = SearchEnv(retriever, QUESTIONS / "train.jsonl")
    rows = environment.get_dataset(n=10)
    assert len(rows) == 10 and environment.tool_defs[0].name == "search"
    assert "session" not in environment.tool_defs[0].parameters["properties"]
    question = {one.id: one for one in read_questions(QUESTIONS / "train.jsonl")}[rows[0]["info"]["id"]]
    calls = ['{"query": "Who founded Acme?", "learned": ""}', '{"query": "Where?", "learned": "Ada"}', "{"]
    tool = {"id": "1", "type": "function"}
    script: list[Any] = [{"tool_calls": [tool | {"function": {"name": "search", "arguments": one}}]} for one in calls]
    script.append({"content": f"I read.\nAnswer: {question.answers[0]} indeed"})
    requests: list[Any] = []

    def model(request: httpx2.Request) -> httpx2.Response:
        requests.append(json.loads(request.content))
        message = {"role": "assistant", "content": None, **script[len(requests) - 1]}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return httpx2.Response(200, json=body)

    async def play() -> Any:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(model)) as web:
            client = OpenAIChatCompletionsClient(
                AsyncOpenAI(api_key="x", base_url="http://127.0.0.1/v1", http_client=web)
            )
            return await environment.run_rollout(dict(rows[0]), client, "m", {})

    done = asyncio.run(play())
    assert done["error"] is None and len(requests) == 4, done
    replies = [one["content"] for one in requests[3]["messages"] if one["role"] == "tool"]
    second = Search(question, "Where?", (Hop("Who founded Acme?", "Ada", "FOUND"),))
    found = retriever.retrieve([Search(question, "Who founded Acme?"), second])
    assert [passages_in(one) for one in replies[:2]] == [[passage.content for passage in one.passages] for one in found]
    from harr.rag.scoring.text import token_f1

    assert done["reward"] == pytest.approx(token_f1(f"{question.answers[0]} indeed", question.answers))
    assert 0 < done["reward"] < 1


def test_the_code_of_the_page_runs(here: Path, expected: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)
    assert capsys.readouterr().out.count("\n") >= 4 and len(names["documents"]) == 3
    found = [one.id for one in names["found"]["search"]["documents"]]
    assert [one.id for one in names["documents"]] == [one.node_id for one in names["nodes"]] == found
    names["environment"]._retriever.close()
