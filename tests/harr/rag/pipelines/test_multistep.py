"""The multi-step pipeline driven by hand: what it asks for, and what malformed replies do."""

import json
from typing import Any

import pytest
from by_hand import ends

from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.replies import last_json
from harr.types import Generate, Hop, Outcome, Passage, Question, Retrieval, Search

QUESTION = Question("q", "Where was the founder\nof $Acme {Tools} born?")
PASSAGES = (Passage("a", "Founded by\nAda $history {Brown}.", "Acme"), Passage("b", "No title here."))
ASK = '{"action": "ASK", "sub_query": "Who founded Acme?", "strategy": "s"}'
STOP = '{"action": "STOP", "sub_query": "", "strategy": "s"}'


def drive(*replies: Any, **settings: Any) -> tuple[list[Any], Outcome]:
    """Send the replies one after another; return the requests before each, and the outcome."""
    game = multistep(QUESTION, **{"max_hops": 5} | settings)
    requests = [next(game)]
    for reply in replies[:-1]:
        requests.append(game.send(reply))
    return requests, ends(game, replies[-1])


def test_one_hop_from_question_to_answer() -> None:
    requests, outcome = drive(ASK, Retrieval(PASSAGES), '{"status": "FOUND", "answer": "Ada"}', STOP, "Ada")
    hop = Hop("Who founded Acme?", "Ada", "FOUND")
    assert outcome == Outcome("Ada", (hop,), 0)
    assert requests[1] == Search(QUESTION, "Who founded Acme?", (), k=0)
    assert [type(request) for request in requests] == [Generate, Search, Generate, Generate, Generate]
    planner, _, reader, second, answer = (r.messages[1]["content"] if isinstance(r, Generate) else "" for r in requests)
    question = "Question: Where was the founder of $Acme {Tools} born?"
    history = 'History: [{"sub_query": "Who founded Acme?", "answer": "Ada", "status": "FOUND"}]'
    assert planner == f"{question}\nHistory: []\nNext action:"
    assert reader == (
        "Sub-query: Who founded Acme?\nPassages:\n"
        "[1] Acme\nFounded by Ada $history {Brown}.\n[2] \nNo title here.\nReading:"
    ), "as published: neither the question nor the history"
    assert "question" not in requests[2].messages[0]["content"].lower(), "nor are its instructions of them"
    assert second == f"{question}\n{history}\nNext action:"
    assert answer == f"{question}\n{history}\nFinal answer:"
    assert '"ASK" or "STOP"' in requests[0].messages[0]["content"]


def test_a_reader_that_sees_the_history_is_asked_for_by_name() -> None:
    found = '{"status": "FOUND", "answer": "Ada"}'
    ask_next = '{"action": "ASK", "sub_query": "Where was she born?"}'
    replies = (ASK, Retrieval(PASSAGES), found, ask_next, Retrieval(()), found, "Ada")
    requests, outcome = drive(*replies, max_hops=2, reader_sees="history")
    assert requests[4].hops == (Hop("Who founded Acme?", "Ada", "FOUND"),) and len(outcome.hops) == 2
    assert requests[5].messages[1]["content"] == (
        "Question: Where was the founder of $Acme {Tools} born?\n"
        'History: [{"sub_query": "Who founded Acme?", "answer": "Ada", "status": "FOUND"}]\n'
        "Sub-query: Where was she born?\nPassages:\n\nReading:"
    )
    plain, _ = drive(*replies, max_hops=2)
    assert plain[5].messages[1]["content"] == "Sub-query: Where was she born?\nPassages:\n\nReading:"


def test_a_resolved_sub_query_is_kept_beside_the_search_and_shown_to_nobody() -> None:
    ask = '{"action": "ASK", "sub_query": "Where was she born?", "resolved": "Where was Ada born?"}'
    requests, _ = drive(ask, Retrieval(PASSAGES), '{"status": "FOUND", "answer": "Bath"}', STOP, "Bath")
    assert requests[1] == Search(QUESTION, "Where was she born?", resolved="Where was Ada born?")
    shown = [message["content"] for request in requests[2:] for message in request.messages]
    assert not any("Where was Ada born?" in text for text in shown)


def test_a_malformed_plan_ends_the_episode() -> None:
    plans = ['{"action": "ASK"}', '{"action": "ASK", "sub_query": " "}', '{"action": "THINK"}', '["ASK"]']
    for reply in ("", "I would stop here.", *plans):
        assert drive(reply)[1] == Outcome("", (), 1), reply


@pytest.mark.parametrize(
    ("reading", "answer", "status", "malformed"),
    [
        ("Ada Brown", "", "AMBIGUOUS", 1),
        ('{"status": "FOUND", "answer": ""}', "", "AMBIGUOUS", 1),
        ('{"status": "MAYBE", "answer": "Ada"}', "", "AMBIGUOUS", 1),
        ('{"answer": "Ada"}', "", "AMBIGUOUS", 1),
        ('{"status": "NOT_FOUND", "answer": ""}', "", "NOT_FOUND", 0),
        ('{"status": "found", "answer": 1898}', "1898", "FOUND", 0),
    ],
)
def test_a_malformed_reading_is_ambiguous(reading: str, answer: str, status: str, malformed: int) -> None:
    outcome = drive(ASK.replace("ASK", "Ask"), Retrieval(PASSAGES), reading, STOP, "Unknown.")[1]
    assert outcome == Outcome("", (Hop("Who founded Acme?", answer, status),), malformed)


def test_text_around_the_json_is_tolerated() -> None:
    for reply in (
        f"```json\n{STOP}\n```",
        f"Let me see. {STOP} Done.",
        f"<think>\n{ASK} or not?</think>\n{STOP}",
        f"First idea: {ASK}\nBetter: {STOP}",
        f"Braces {{like these}} are no JSON. {STOP}",
        json.dumps(json.loads(STOP), indent=2),
    ):
        assert last_json(reply, "action")["action"] == "STOP", reply
