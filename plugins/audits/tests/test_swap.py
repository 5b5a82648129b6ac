"""The evidence swap: who reads loses the answer with the passages, who knows it keeps it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from harr_audits.swap import FEWEST, SAMPLE, Swapped, donors, swap

from harr.evaluate.play import Game
from harr.rag.pipelines.pick import pick
from harr.rag.pipelines.search_r1 import search_r1
from harr.types import Episode, Generate, Outcome, Passage, Question, Retrieval, Search, Step

PLAY = partial(search_r1, max_searches=2, template="bare")


class Own:
    """Finds the one passage of a question."""

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        return [Retrieval((Passage(s.question.id, f"Town {s.question.answers[0]}", "It"),)) for s in searches]


class Writer:
    """Searches once, then answers by a rule of the text so far."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        texts = [request.prompt for request in requests]
        return [
            f"<answer> {self.answer(text)} </answer>" if "</information>" in text else "<search> where </search>"
            for text in texts
        ]

    def usage(self) -> Mapping[str, float]:
        return {}


def reads(text: str) -> str:
    """The last word of the passage."""
    return text.partition("</information>")[0].split()[-1]


def knows(text: str) -> str:
    """The answer of question 7 is town7."""
    return f"town{text.partition('Where is ')[2].partition('?')[0]}"


def asked(count: int) -> list[Question]:
    return [Question(f"q{n}", f"Where is {n}?", (f"town{n}",), (f"q{n}",)) for n in range(count)]


def swapped(answer: Callable[[str], str], count: int = 20) -> dict[str, float | str]:
    game = Game("trained", PLAY, Own(), Writer(answer))
    return swap(game, game.play(asked(count), batch_size=8), batch_size=8, resamples=200, seed=0)


def test_answers_that_are_read_fall_those_that_are_known_stay_and_of_few_nothing_is_said() -> None:
    read, known = swapped(reads), swapped(knows)
    assert (read["own"], read["swapped"], read["fall"], read["n"]) == (1.0, 0.0, 1.0, 20.0) and read["low"] > 0.99
    assert (known["own"], known["swapped"], known["fall"], known["low"]) == (1.0, 1.0, 0.0, 0.0)
    assert "only 5 answers" in str(swapped(reads, 5)["not_asked"]) and FEWEST == 10
    picking = Game("trained", partial(pick, picks=1), Own(), None)
    found = swap(picking, picking.play(asked(20), batch_size=8), batch_size=8, resamples=200, seed=0)
    assert found == {"not_asked": "the pipeline gives no answers"}


def episode(question: Question, *texts: str, answer: str = "town1") -> Episode:
    steps = tuple(Step(Search(question, "?"), Retrieval((Passage(text, text),))) for text in texts)
    return Episode(question, steps, Outcome(answer))


def test_a_donor_states_no_answer_of_the_question_and_right_answers_alone_are_asked() -> None:
    first, second, third = asked(3)
    same = replace(second, answers=first.answers)
    played = [episode(first, "a", answer="town0"), episode(same, "town0", answer="Rome"), episode(third, "c", "d")]
    assert donors(played, 0) == {first: [(Passage("c", "c"),), (Passage("d", "d"),)]}
    many = [episode(question, f"text {question.id}", answer=question.answers[0]) for question in asked(SAMPLE + 10)]
    assert len(donors(many, 0)) == SAMPLE and donors(many, 0) == donors(many, 0) != donors(many, 1)


def test_the_other_question_s_searches_come_one_after_the_other() -> None:
    question = asked(1)[0]
    shelf = Swapped({"q0": [(Passage("a", "a"),), (Passage("b", "b"), Passage("c", "c"))]})
    asked_for = [Search(question, "x"), Search(question, "y", exclude_ids=frozenset("b")), Search(question, "z")]
    found = shelf.retrieve(asked_for)
    assert [[passage.id for passage in one.passages] for one in found] == [["a"], ["c"], ["a"]]
