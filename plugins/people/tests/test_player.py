"""The planner and the reader of the people's world: what a sub-query says, and who can tell whom it means."""

import json
from collections.abc import Sequence
from functools import partial

import pytest
from harr_people import player, references
from harr_people.biography import FACT, FACTS
from harr_people.people import People
from harr_people.player import Scripted
from harr_people.programs import PROGRAMS
from letters import OnePassage

from harr.rag.pipelines.multistep import multistep
from harr.rag.rollout import play
from harr.types import Episode, Generate, Question, Retrieval, Search

ADA, EVA = "the painter Ada Brown", "the poet Eva Price"
PASSAGES = [
    ("Eva Price", "Eva Price had a lifelong rival, John Gray. A diary of Ada Brown tells of it."),
    ("Ada Brown", "Ada Brown had a lifelong partner, Clara Gray. Letters to Eva Price tell of it."),
    ("Ada Brown", "Ada Brown shared many a stage with Ida Hall, a rival. Letters to Eva Price tell of it."),
]


@pytest.fixture(scope="module")
def world() -> People:
    return People(200, 8, seed=0)


class Gold:
    """Returns all gold passages of the question, whose relations all differ, but for number ``blind``."""

    def __init__(self, world: People, blind: int = -1) -> None:
        self.passages, self.blind = {passage.id: passage for passage in world.passages()}, blind

    def retrieve(self, searches: list[Search]) -> list[Retrieval]:
        golds = [[g for n, g in enumerate(s.question.gold_ids) if n != self.blind] for s in searches]
        return [Retrieval(tuple(self.passages[name] for name in gold)) for gold in golds]


def played(world: People, count: int, blind: int = -1, programs: Sequence[str] = tuple(PROGRAMS)) -> list[Episode]:
    questions = world.questions("test", count, programs)
    return play(questions, partial(multistep, max_hops=5), Gold(world, blind), Scripted())


def test_gold_passages_answer_every_question(world: People) -> None:
    for episode in played(world, 150):
        assert episode.answer == episode.question.answers[0]
        assert len(episode.steps) == len(episode.question.gold_ids)
        assert episode.outcome.malformed == 0


def test_after_a_missed_step_the_answer_is_what_was_found_before(world: People) -> None:
    answers = set()
    for episode in played(world, 40, blind=2, programs=["line"]):
        assert [hop.status for hop in episode.outcome.hops] == ["FOUND", "FOUND", "NOT_FOUND"]
        assert episode.answer in ("", *episode.question.answers[0].split("; "))
        answers.add(bool(episode.answer))
    assert answers == {True, False}


def test_a_reader_takes_the_first_passage_that_states_the_relation_and_a_name_at_its_word() -> None:
    for asked, shown, answer in (
        ("Who was her rival?", PASSAGES, "John Gray"),
        ("Who was the teacher's rival?", PASSAGES[::-1], "Ida Hall"),
        ("Who was her partner?", PASSAGES, "Clara Gray"),
        ("Who was Ada Brown's rival?", PASSAGES, "Ida Hall"),
        ("Who was Ida Hall's rival?", PASSAGES, ""),
        ("Who was her teacher?", PASSAGES, ""),
        ("Who was her rival?", [], ""),
    ):
        reading = {"status": "FOUND" if answer else "NOT_FOUND", "answer": answer}
        assert player.look(asked, shown) == reading, asked
    shown = "\n".join(f"[{n}] {title}\n{text}" for n, (title, text) in enumerate(PASSAGES, start=1))
    for head in ("", "Question: What?\nHistory: []\n"):  # which it does not need
        asked = f"{head}Sub-query: Who was her rival?\nPassages:\n{shown}\nReading:"
        reply = Scripted().complete([Generate(({"role": "user", "content": asked},))])[0]
        assert json.loads(reply) == {"status": "FOUND", "answer": "John Gray"}


def test_each_kind_of_reference_is_used_where_it_can_be_understood() -> None:
    x, y = (ADA,), (EVA,)
    a, b = (ADA, "rival"), (EVA, "teacher")
    two = {x: "Ada Brown", y: "Eva Price"}
    assert references.possessives(x, [], two) == {"name": "Ada Brown's", "epithet": "the painter's"}
    after = references.possessives(y, [a], two | {a: "Edgar Gray"})
    assert after == {"name": "Eva Price's", "epithet": "the poet's", "other": "the other one's"}
    found = two | {a: "Edgar Gray", b: "Ida Hall"}
    assert references.possessives(a, [a, b], found) == {"name": "Edgar Gray's", "description": "the rival's"}
    assert references.possessives(b, [a, b], found)["pronoun"] == "her"
    leaf = (*b, "summer home")
    assert references.possessives(a, [a, b, leaf], found)["other"] == "the other one's"
    assert references.possessives(b, [a, b, leaf], found)["ellipsis"] == "the"


def test_every_sub_query_is_understood_as_what_was_asked() -> None:
    for fact in FACTS:
        for pick in (0, 1):
            for whose, name in (("Ada B. Brown's", "Ada B. Brown"), ("her", ""), ("the", ""), ("the other one's", "")):
                assert references.understand(references.ask(fact, whose, pick)) == (fact, name)
            for other in ("painter", *FACT):
                assert references.understand(references.ask(fact, f"the {other}'s", pick)) == (fact, "")


def test_a_foreign_question_is_searched_once_and_given_up() -> None:
    for asked in ("Were Scott Derrickson and Ed Wood alike?", "", "{} $x \\ Passages: [1]", "Name the ."):
        episode = play([Question("q", asked)], partial(multistep, max_hops=5), OnePassage(), Scripted())[0]
        assert [step.search.query for step in episode.steps] == ([asked] if asked else [])
        assert episode.answer == ""
