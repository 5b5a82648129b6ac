"""The scripted planner and reader: reads only its messages, tells namesakes apart, needs the history."""

import json
from functools import partial

import pytest
from harr_encyclopaedia.scripted import Scripted
from harr_encyclopaedia.world import World, make_world

from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.replies import passages_text, prompt
from harr.rag.rollout import play
from harr.types import Generate, Passage, Question, Retrieval, Search

GAME = partial(multistep, max_hops=5, reader_sees="history")


def read(sub_query: str, *passages: tuple[str, str], last_answer: str = "") -> dict[str, str]:
    history = [{"sub_query": "?", "answer": last_answer, "status": "FOUND"}] if last_answer else []
    shown = "\n".join(f"[{n}] {title}\n{text}" for n, (title, text) in enumerate(passages, start=1))
    prompt = f"Question: ?\nHistory: {json.dumps(history)}\nSub-query: {sub_query}\nPassages:\n{shown}\nReading:"
    reading: dict[str, str] = json.loads(Scripted().complete([Generate(({"role": "user", "content": prompt},))])[0])
    return reading


CHEMIST = ("Ada Brown (chemist)", "Ada Brown was a chemist. She was born in Ashford.")
PAINTER = ("Ada Brown (painter)", "Ada Brown was a painter. Ada Brown was born in Elmham.")
NEAR = ("Ada Browne", "Ada Browne was a poet. She was born in Oakbury.")


def test_a_reader_takes_names_at_their_word_pronouns_from_the_last_answer_and_passages_alone() -> None:
    for asked, shown, last, answer in (
        ("Where was the painter Ada Brown born?", (CHEMIST, PAINTER, NEAR), "", "Elmham"),
        ("Where was the chemist Ada Brown born?", (PAINTER, NEAR, CHEMIST), "", "Ashford"),
        ("Where was Ada Browne born?", (CHEMIST, PAINTER, NEAR), "", "Oakbury"),
        ("Where was she born?", (CHEMIST, PAINTER, NEAR), "the painter Ada Brown", "Elmham"),
        ("Where was she born?", (CHEMIST, PAINTER, NEAR), "Ada Gray", ""),
        ("Where was she born?", (CHEMIST,), "", ""),
        ("Where was Ada Browne born?", (), "", ""),
        ("Who was the mother of Ada Browne?", (NEAR,), "", ""),
        ("How tall is the moon?", (NEAR,), "", ""),
    ):
        reading = {"status": "FOUND" if answer else "NOT_FOUND", "answer": answer}
        assert read(asked, *shown, last_answer=last) == reading, (asked, shown)
    assert read("Where was Ada Brown born?", CHEMIST, PAINTER) == {"status": "AMBIGUOUS", "answer": ""}


def test_a_foreign_question_is_searched_once_and_given_up() -> None:
    class Nothing:
        def retrieve(self, searches: list[Search]) -> list[Retrieval]:
            return [Retrieval((Passage("p", "Some text.", "Some title"),)) for _ in searches]

    for asked in ("Were Scott Derrickson and Ed Wood alike?", "", "{} $x \\ Passages: [1]", "Who founded ?", "Was?"):
        episode = play([Question("q", asked)], GAME, Nothing(), Scripted())[0]
        assert [step.search.query for step in episode.steps] == ([asked] if asked else [])
        assert episode.answer == ""


class Gold:
    """Returns the gold passage of the hop, except at ``blind``, where it returns the first one of the corpus."""

    def __init__(self, world: World, blind: int = -1) -> None:
        self.passages = {passage.id: passage for passage in world.passages()}
        self.blind = blind

    def retrieve(self, searches: list[Search]) -> list[Retrieval]:
        ids = ["w0000000" if len(s.hops) == self.blind else s.question.gold_ids[len(s.hops)] for s in searches]
        return [Retrieval((self.passages[name],)) for name in ids]


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(2000, seed=0)


def test_gold_passages_answer_every_question(world: World) -> None:
    questions = world.questions("train", 100, [1, 2, 3, 4]) + world.questions("test", 100, [1, 2, 3, 4])
    for episode in play(questions, GAME, Gold(world), Scripted()):
        assert episode.answer == episode.question.answers[0]
        assert len(episode.steps) == len(episode.question.gold_ids)
        assert episode.outcome.malformed == 0


def test_a_missed_hop_ends_the_episode_without_an_answer(world: World) -> None:
    questions = [q for q in world.questions("test", 60, [2, 3, 4]) if "w0000000" not in q.gold_ids]
    for episode in play(questions, GAME, Gold(world, blind=1), Scripted()):
        assert [hop.status for hop in episode.outcome.hops] == ["FOUND", "NOT_FOUND"]
        assert episode.answer == ""


def test_a_reader_needs_every_passage_of_the_chain(world: World) -> None:
    known = {passage.id: passage for passage in world.passages()}
    for question in world.questions("test", 40, [2, 3]):
        gold = [known[name] for name in question.gold_ids]
        for shown, answer in ((gold[::-1], question.answers[0]), (gold[:-1], "unknown")):
            asked = prompt("read", question, (), passages=passages_text(shown)[0])
            assert Scripted().complete([asked]) == [answer]
    asked = prompt("read", Question("q", "Why?"), (), passages="[1] Bath\nA town.")
    assert Scripted().complete([asked]) == ["unknown"]
