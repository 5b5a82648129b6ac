"""The scripted planner and reader: reads only its messages, tells namesakes apart, needs the history."""

import json
import time
from functools import partial

import pytest

from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.replies import passages_text, prompt
from harr.rag.rollout import play
from harr.types import Generate, Passage, Question, Retrieval, Search
from harr.world import grammar
from harr.world.scripted import Scripted
from harr.world.world import World, make_world

GAME = partial(multistep, max_hops=5, reader_sees="history")


def ask(prompt: str) -> str:
    return Scripted().complete([Generate(({"role": "system", "content": "..."}, {"role": "user", "content": prompt}))])[
        0
    ]


def read(sub_query: str, *passages: tuple[str, str], last_answer: str = "") -> dict[str, str]:
    history = [{"sub_query": "?", "answer": last_answer, "status": "FOUND"}] if last_answer else []
    shown = "\n".join(f"[{n}] {title}\n{text}" for n, (title, text) in enumerate(passages, start=1))
    prompt = f"Question: ?\nHistory: {json.dumps(history)}\nSub-query: {sub_query}\nPassages:\n{shown}\nReading:"
    reading: dict[str, str] = json.loads(ask(prompt))
    return reading


def found(answer: str) -> dict[str, str]:
    return {"status": "FOUND", "answer": answer}


NOT_FOUND = {"status": "NOT_FOUND", "answer": ""}
CHEMIST = ("Ada Brown (chemist)", "Ada Brown was a chemist. She was born in Ashford.")
PAINTER = ("Ada Brown (painter)", "Ada Brown was a painter. Ada Brown was born in Elmham.")
NEAR = ("Ada Browne", "Ada Browne was a poet. She was born in Oakbury.")


def test_a_name_is_taken_at_its_word() -> None:
    assert read("Where was the painter Ada Brown born?", CHEMIST, PAINTER, NEAR) == found("Elmham")
    assert read("Where was the chemist Ada Brown born?", PAINTER, NEAR, CHEMIST) == found("Ashford")
    assert read("Where was Ada Browne born?", CHEMIST, PAINTER, NEAR) == found("Oakbury")


def test_namesakes_without_a_qualifier_are_ambiguous() -> None:
    assert read("Where was Ada Brown born?", CHEMIST, PAINTER) == {"status": "AMBIGUOUS", "answer": ""}


def test_a_pronoun_means_the_last_answer() -> None:
    assert read("Where was she born?", CHEMIST, PAINTER, NEAR, last_answer="the painter Ada Brown") == found("Elmham")
    assert read("Where was she born?", CHEMIST, PAINTER, NEAR, last_answer="Ada Gray") == NOT_FOUND
    assert read("Where was she born?", CHEMIST) == NOT_FOUND


def test_only_the_passages_count() -> None:
    assert read("Where was Ada Browne born?") == NOT_FOUND
    assert read("Who was the mother of Ada Browne?", NEAR) == NOT_FOUND
    assert read("How tall is the moon?", NEAR) == NOT_FOUND


@pytest.mark.parametrize(
    "question",
    [
        "Were Scott Derrickson and Ed Wood of the same nationality?",
        "",
        "{} $x \\ Passages: [1]",
        "Who founded ?",
        "Was?",
    ],
)
def test_a_foreign_question_is_searched_once_and_given_up(question: str) -> None:
    class Nothing:
        def retrieve(self, searches: list[Search]) -> list[Retrieval]:
            return [Retrieval((Passage("p", "Some text.", "Some title"),)) for _ in searches]

    episode = play([Question("q", question)], GAME, Nothing(), Scripted())[0]
    assert [step.search.query for step in episode.steps] == ([question] if question else [])
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
    questions = world.questions("train", 400, [1, 2, 3, 4]) + world.questions("test", 400, [1, 2, 3, 4])
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


def test_half_of_the_later_sub_queries_need_the_history(world: World) -> None:
    questions = world.questions("train", 600, [4])
    vague = [
        [grammar.parse_vague(step.search.query) is not None for step in episode.steps]
        for episode in play(questions, GAME, Gold(world), Scripted())
    ]
    shares = [sum(hop) / len(vague) for hop in zip(*vague, strict=True)]
    assert shares[0] == 0
    assert all(0.44 < share < 0.56 for share in shares[1:])
    all_clear = sum(not any(episode) for episode in vague) / len(vague)
    assert 0.08 < all_clear < 0.18  # one in eight, so the hops are drawn independently


def test_thousands_of_requests_a_second(world: World) -> None:
    class Counted(Scripted):
        requests, seconds = 0, 0.0

        def complete(self, requests: list[Generate]) -> list[str]:
            began = time.process_time()
            replies = super().complete(requests)
            Counted.requests += len(requests)
            Counted.seconds += time.process_time() - began
            return replies

    play(
        world.questions("train", 300, [3]),
        GAME,
        Gold(world),
        Counted(),
    )
    assert Counted.requests == 300 * (3 + 3 + 1 + 1)
    assert Counted.requests / Counted.seconds > 2000
