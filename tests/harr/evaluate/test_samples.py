"""Search at test time: what a majority and a judge choose, who sees what, and what it costs."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from letters import OnePassage

from harr.evaluate.play import Game, rates
from harr.evaluate.samples import best_of, majority, play_samples, written_tokens
from harr.rag.pipelines.search_r1 import search_r1
from harr.types import Episode, Generate, Outcome, Passage, Question, Retrieval, Search, Step, Turn

ASKED = [Question(f"q{n}", f"Who is {n}?", answers=("Ada",)) for n in range(2)]


def episode(answer: str, question: Question = ASKED[0], found: str = "p1") -> Episode:
    """An episode that found one passage."""
    step = Step(Search(question, "x"), Retrieval((Passage(found, "It was Ada."),)))
    return Episode(question, (step,), Outcome(answer), (Turn(Generate(prompt="Who?"), f"so {answer}"),))


def judge_that(grades: dict[str, str], seen: list[str]) -> Any:
    """A judge that grades answers by their words."""

    def complete(requests: Sequence[Generate]) -> list[str]:
        texts = [request.messages[-1]["content"] for request in requests]
        seen.extend(texts)
        return [grades[json.loads(text.rpartition("Answer: ")[2])] for text in texts]

    return SimpleNamespace(complete=complete)


def test_every_sample_plays_all_questions() -> None:
    def writer(answer: str) -> Any:
        return SimpleNamespace(complete=lambda requests: [f"<answer>{answer}" for _ in requests])

    game = Game("arm", lambda asked: search_r1(asked, max_searches=1), OnePassage(), None)
    groups = play_samples(ASKED, game, [writer("Ada"), writer("Ben"), writer("Ada")], batch_size=1)
    assert [[one.answer for one in group] for group in groups] == [["Ada", "Ben", "Ada"]] * 2
    assert [group[0].question.id for group in groups] == ["q0", "q1"]
    assert rates(groups, (1, 2))["q1"] == pytest.approx({"pass_at_1": 2 / 3, "pass_at_2": 1.0})
    assert [majority(group).answer for group in groups] == ["Ada", "Ada"]
    assert written_tokens(groups[0], lambda text: len(text.split("<"))) == 6.0


def test_a_judge_chooses_by_passages_and_is_told_no_gold() -> None:
    seen: list[str] = []
    group = (episode("Ben"), episode("Ada"), episode("Cy", found="p2"), episode("Ada"), episode(""))
    judge = judge_that({"Ben": '{"score": 0.5}', "Ada": '{"score": 1}', "Cy": "no idea"}, seen)
    assert best_of([group], judge) == [group[1]]
    assert len(seen) == 3 and all("It was Ada." in text and "Reference" not in text for text in seen), "equal ones once"
    tie = judge_that(dict.fromkeys(("Ben", "Ada", "Cy"), '{"score": 0.5}'), [])
    assert best_of([group], tie)[0].answer == "Ada", "of equals the more frequent"
    silent = (episode(""), episode(""))
    assert best_of([silent], judge) == [silent[0]]
