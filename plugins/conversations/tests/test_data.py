"""Conversations of files: what becomes a question, what its state reads, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from downloading import questions, run, write_rows
from harr_conversations.data import questions_of, set_apart
from harr_conversations.play import play

from harr.embed.encoder import Encoder
from harr.errors import CorpusError
from harr.io.jsonl import Row
from harr.params.download import FunctionDatasetParams
from harr.rag.policies.state import StateFormat, state_text
from harr.serve.bodies import SearchBody
from harr.types import Hop, Question, Search

TURNS = [
    {"question": "Who founded Acme?", "answer": "Ada Brown", "supporting": ["p1"]},
    {"question": "Is she alive?", "answer": "I do not know."},
    {
        "question": "Where was she born?",
        "supporting": ["p2"],
        "kind": "pronoun",
        "rewrite": "Where was Ada Brown born?",
    },
]
MESSAGES = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "Who founded\n  Acme?"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
    {"role": "tool", "content": "Acme: founded by Ada Brown", "tool_call_id": "1"},
    {"role": "assistant", "content": "Ada Brown."},
    {"role": "user", "content": "Hm."},
    {"role": "user", "content": [{"type": "text", "text": "Where?"}, {"type": "image_url", "image_url": {"url": "x"}}]},
    {"role": "assistant", "content": "In Ashford."},
    {"role": "user", "content": "And when?"},
]


def asked(**values: Any) -> list[Question]:
    return questions_of(Row(values, "c.jsonl:1"))


def search_of(question: Question) -> Search:
    search = next(play(question))
    assert isinstance(search, Search)
    return search


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FunctionDatasetParams:
    """Two passages, nine conversations to learn from and one to test with."""
    monkeypatch.chdir(tmp_path)
    passages = [{"id": f"p{n}", "text": f"Passage {n}."} for n in (1, 2)]
    train = [{"id": f"c{n}", "turns": [TURNS[0] | {"question": f"Who founded {n}?"}, *TURNS[1:]]} for n in range(9)]
    settings = {
        "passages": [write_rows("passages.jsonl", passages)],
        "train": [write_rows("train.jsonl", train)],
        "test": [write_rows("test.jsonl", [{"id": "t", "turns": TURNS}])],
    }
    function = "harr_conversations.data:DATASET"
    return FunctionDatasetParams(dataset="function", function=function, validation_questions=3, settings=settings)


def test_a_turn_with_gold_is_a_question_after_the_turns_before_it() -> None:
    first, later = asked(id="c", turns=TURNS)
    assert (first.id, first.text, first.gold_ids, first.kind, first.level) == (
        "c/1", "Who founded Acme?", ("p1",), "first", "turn 1",
    )  # fmt: skip
    assert (later.id, later.kind, later.level) == ("c/3", "pronoun", "turn 3")
    assert later.history == (Hop("Who founded Acme?", "Ada Brown"), Hop("Is she alive?", "I do not know."))
    assert (search_of(first).resolved, search_of(later).resolved) == ("", "Where was Ada Brown born?")
    assert [one.kind for one in asked(turns=[TURNS[0], TURNS[0]])] == ["first", "later"]


@pytest.mark.parametrize("style", ["sep", "lines", "json"])
def test_training_reads_byte_by_byte_what_the_server_makes_of_the_same_messages(style: str) -> None:
    """Multi-line text, tools, an image and two messages of the user in a row included."""
    learnt = asked(messages=MESSAGES, supporting=[["p1"], [], ["p2"], ["p1"]])
    assert [one.id for one in learnt] == ["c.jsonl:1/1", "c.jsonl:1/3", "c.jsonl:1/4"]
    ends = [number for number, message in enumerate(MESSAGES, 1) if message["role"] == "user"]
    for question, end in zip(learnt, (ends[0], ends[2], ends[3]), strict=True):
        served = SearchBody.model_validate({"messages": MESSAGES[:end]}).search(statuses=False)
        mine, theirs = (state_text(one, style=style, history=True) for one in (search_of(question), served))
        assert mine == theirs
    assert learnt[-1].history == (
        Hop("Who founded\n  Acme?", " Ada Brown."),
        Hop("Hm.", ""),
        Hop("Where? ", "In Ashford."),
    )


def test_no_text_acts_on_a_terminal() -> None:
    (question,) = asked(turns=[{"question": "\x1b[2JWho\r\x9b31m\n\tfounded Acme?", "supporting": ["p1"]}])
    assert question.text == " [2JWho  31m\n\tfounded Acme?"


def test_of_400_turns_the_state_keeps_the_last_and_counts_the_others(tiny: str) -> None:
    turns = [{"question": f"What of {n}?", "answer": f"{n}.", "supporting": ["p1"]} for n in range(400)]
    *_, last = asked(id="long", turns=turns)
    assert len(last.history) == 399
    encoder = Encoder(tiny, max_tokens=64)
    (text,), (lost,) = StateFormat("sep", True, 64, separator="|").texts([search_of(last)], encoder)
    assert text.startswith("What of 399? | ") and text.endswith("What of 398? 398.") and "What of 0?" not in text
    assert lost.dropped == 399 - text.count("|")
    assert encoder.token_counts([text], prompt="")[0] <= 64


def test_no_conversation_is_in_two_splits(files: FunctionDatasetParams) -> None:
    """Equal words after other turns are another question; after the same ones they are the same."""
    counts = run(files)
    names = {split: {one.id.split("/")[0] for one in questions(split)} for split in ("train", "validation", "test")}
    assert not names["train"] & names["validation"] and len(names["train"]) == 7 and len(names["validation"]) == 2
    assert (counts["train_questions"], counts["validation_questions"], counts["test_questions"]) == (14, 3, 2)
    (later,) = (one for one in questions("test") if one.level == "turn 3")
    assert later.history[0] == Hop("Who founded Acme?", "Ada Brown")
    write_rows("train.jsonl", [{"id": "copy", "turns": TURNS}, {"id": "c", "turns": TURNS[1:]}])
    counts = run(files.model_copy(update={"validation_questions": 0}))
    assert counts["train_questions_dropped_because_in_test"] == 2 and [q.id for q in questions("train")] == ["c/2"]


def test_validation_has_files_of_its_own(files: FunctionDatasetParams) -> None:
    own = write_rows("validation.jsonl", [{"id": "v", "turns": [TURNS[0] | {"question": "Who founded V?"}]}])
    counts = run(files.model_copy(update={"settings": files.settings | {"validation": [own]}}))
    assert counts["train_questions"] == 18 and [one.id for one in questions("validation")] == ["v/1"]


def test_gold_that_is_no_passage_is_one_line_or_left_out(files: FunctionDatasetParams) -> None:
    write_rows("test.jsonl", [{"id": "t", "turns": [*TURNS, TURNS[2] | {"supporting": ["p9"]}]}])
    with pytest.raises(CorpusError, match=r"1 supporting ids of test questions .* 't/4' names 'p9'"):
        run(files)
    counts = run(files.model_copy(update={"missing_gold": "drop"}))
    assert (counts["test_questions"], counts["test_questions_without_their_passages"]) == (2, 1)


def test_a_validation_of_all_conversations_is_refused() -> None:
    with pytest.raises(CorpusError, match="validation_questions 2 leaves none of 2 training conversations"):
        set_apart([asked(id="a", turns=TURNS[:1]), asked(id="b", turns=TURNS[:1])], 2)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({}, "c.jsonl:1: turns is None; expected a list of objects, one at least"),
        ({"turns": []}, "c.jsonl:1: turns is []; expected a list of objects"),
        ({"turns": [TURNS[0], {"question": " "}]}, "c.jsonl:1: turn 2: nothing is asked; write the question"),
        ({"turns": [{"question": ["Who?"]}]}, "c.jsonl:1: turn 1: question is ['Who?'], a list; expected a string"),
        ({"turns": [{"question": "Who?", "supporting": "p1"}]}, "turn 1: supporting is 'p1'; expected a list of str"),
        ({"id": "", "turns": TURNS}, "c.jsonl:1: conversation without id (id is '', a str)"),
        ({"messages": [{"role": "system", "content": "Hi"}]}, "c.jsonl:1: Value error, no message is the user's"),
        ({"messages": [{"content": "Hi"}]}, "c.jsonl:1: messages.0.role: Field required"),
        ({"messages": MESSAGES}, "c.jsonl:1: supporting has 0 lists for 4 messages of the user; give a list of ids"),
        ({"messages": MESSAGES, "supporting": [[]] * 3}, "c.jsonl:1: supporting has 3 lists for 4 messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}], "supporting": [["p1"]]},
            "c.jsonl:1: turn 1: nothing is asked",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line_with_its_place(values: dict[str, Any], line: str) -> None:
    with pytest.raises(CorpusError) as error:
        asked(**values)
    assert line in str(error.value) and "\n" not in str(error.value)
