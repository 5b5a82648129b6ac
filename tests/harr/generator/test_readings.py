"""Examples of reading: which passages are shown, and what to answer from them."""

from pathlib import Path

import pytest
from shelves import leads_of

from harr.corpus.passages import Passages
from harr.errors import CorpusError
from harr.generator.readings import UNKNOWN, WRONG_EVERY, make_readings
from harr.types import Passage, Question

SHELF = (
    Passage("film", "The Old Mill is a film by Ada Brown.", "The Old Mill"),
    Passage("ada", "Ada Brown was born in Bath.", "Ada Brown"),
    Passage("carl", "Carl Dean was born in Ely.", "Carl Dean"),
    Passage("song", "The Old Song is by Carl Dean.", "The Old Song"),
)


@pytest.fixture
def passages(tmp_path: Path) -> Passages:
    return leads_of(tmp_path, SHELF).passages


def asked(number: int, *gold: str, answer: str = "Bath", given: tuple[str, ...] = ()) -> Question:
    text = f"Where was the director of The Old Mill born, {number}?"
    return Question(f"q{number}", text, answers=(answer,), gold_ids=gold, candidate_ids=given)


def shown(row: dict[str, list[dict[str, str]]]) -> tuple[set[str], str]:
    """Return the ids of an example's passages, and its answer."""
    _, user, assistant = row["messages"]
    assert user["role"] == "user" and assistant["role"] == "assistant"
    return {passage.id for passage in SHELF if passage.text in user["content"]}, assistant["content"]


def test_gold_is_answered_and_wrong_passages_are_unknown(passages: Passages) -> None:
    questions = [
        asked(number, "film", "ada", given=("ada", "carl", "film", "song")) for number in range(WRONG_EVERY + 1)
    ]
    rows = [shown(row) for row in make_readings(questions, passages, 2, 0)]
    golds = [answer for ids, answer in rows if ids == {"film", "ada"}]
    assert golds == ["Bath"] * len(questions)
    others = [(ids, answer) for ids, answer in rows if ids != {"film", "ada"}]
    assert len(others) == 2, "one in three questions is shown again"
    assert all(len(ids) == 2 and (answer == "Bath") == ("ada" in ids) for ids, answer in others)
    assert make_readings(questions, passages, 2, 0) == make_readings(questions, passages, 2, 0)


def test_a_question_without_given_passages_is_shown_gold_of_another(passages: Passages) -> None:
    questions = [asked(0, "film", answer="no"), asked(1, "carl", answer="Ely"), Question("q", "Who?", answers=("A",))]
    rows = [shown(row) for row in make_readings(questions, passages, 2, 0)]
    assert rows == [({"film", "carl"}, "no"), ({"carl"}, UNKNOWN), ({"carl", "film"}, "Ely")]
    alone = make_readings(questions[:1], passages, 2, 0)
    assert [shown(row) for row in alone] == [({"film"}, "no")], "no other passage is known"
    with pytest.raises(CorpusError, match="no training question has both answers and supporting passages; name a file"):
        make_readings(questions[2:], passages, 2, 0)
