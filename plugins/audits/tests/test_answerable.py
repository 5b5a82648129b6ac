"""Which questions can be answered, and how arms rank among them."""

from dataclasses import replace
from pathlib import Path

from harr_audits.answerable import audit_answerable
from stages import world_params

from harr.corpus.passages import read_questions
from harr.types import Episode, Outcome
from tasks.paths import QUESTIONS


def test_arms_are_ranked_by_what_a_question_needs(place: Path, tiny: str) -> None:
    """The gold passages of the world state every answer but the first; with them half of the questions are answered."""
    first, second, *others = read_questions(QUESTIONS / "test.jsonl")
    questions = [replace(first, answers=("Nowhere",)), replace(second, answers=("yes",)), *others]
    episodes = {"frozen": [Episode(question, (), Outcome("")) for question in questions]}

    def rows(right: range) -> list[list[dict[str, object]]]:
        return [[{"id": q.id, "answer_f1": float(n in right)} for n, q in enumerate(questions)]]

    every = {
        "frozen": rows(range(5)),  # four of them need no passage
        "trained": rows(range(3, 7)),
        "gold": rows(range(6)),
        "nothing": rows(range(4)),
    }
    audit = audit_answerable(world_params(tiny), every, episodes)
    assert audit.facts["questions"] == {"all": 12, "stated": 11, "read": 6, "not known": 8}
    frozen, trained = audit.table
    assert list(frozen.values()) == ["frozen", "41.7", "36.4", "83.3", "12.5"]
    assert list(trained.values()) == ["trained", "33.3", "36.4", "50.0", "37.5"]
    assert audit.note == "not known: trained is ahead of frozen" and not audit.alarms
    alone = audit_answerable(world_params(tiny), {"frozen": every["frozen"]}, episodes)
    assert alone.facts["questions"] == {"all": 12, "stated": 11}
    assert alone.note == "The arms rank alike in every group."
