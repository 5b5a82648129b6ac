"""A beam over searches: the most promising episodes go on, from what they are, and every part is paid for once."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from harr_selectors.beam import play_beam
from harr_selectors.best_of import choose_best

from harr.evaluate.play import Game
from harr.rag.pipelines.r_search import r_search
from harr.rag.pipelines.search_r1 import search_r1
from harr.types import Generate, Passage, Pipeline, Question, Retrieval, Search
from tasks.samples import count_tokens

ASKED = [Question(f"q{n}", f"Who is {n}?") for n in range(2)]
PLAN = "<search>\nNodes:\nA: {0} (General)\nB: other (General)\nEdges:\n</search>"
PLAYED: list[Pipeline] = [
    lambda asked: search_r1(asked, max_searches=2),
    lambda asked: r_search(asked, tools=("General",)),
]


class Echo:
    """A retriever that finds what it is asked for."""

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        return [Retrieval((Passage(one.query, f"#{one.query}"),)) for one in searches]


class Writer:
    """A sample that searches for its own word, and for it again, and answers with all words that it has read."""

    def __init__(self, word: str, plans: bool) -> None:
        self.word, self.plans, self.asked = word, plans, 0

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        self.asked += len(requests)
        return [self._reply(request.prompt.count("#")) for request in requests]

    def _reply(self, found: int) -> str:
        if self.plans:
            return "so</think>" + PLAN.format(self.word) if not found else f"<answer>{self.word}</answer>"
        return f"<search>{self.word}{found}" if found < 2 else f"<answer>{self.word}"


def judge(requests: Sequence[Generate]) -> list[str]:
    texts = [request.messages[-1]["content"] for request in requests]
    assert all("Question: Who is" in text for text in texts)
    return ['{"score": 1.0}' if "#good" in text and "#bad" not in text else "no idea" for text in texts]


@pytest.mark.parametrize("plans", [False, True])
def test_after_every_search_the_most_promising_goes_on(plans: bool) -> None:
    samplers: list[Any] = [Writer(word, plans) for word in ("bad", "worse", "good", "poor")]
    game = Game("arm", PLAYED[plans], Echo(), None)
    groups, played = play_beam(ASKED, game, samplers, SimpleNamespace(complete=judge), batch_size=8)  # type: ignore[arg-type]
    assert [{one.question.id for one in group} for group in groups] == [{"q0"}, {"q1"}]
    first, *others = [{step.search.query for step in one.steps} & {"good", "good0"} for one in groups[0]]
    assert first and others == [first] * 3, "all go on from the one that was graded best"
    assert [one.answer for one in groups[1]] == ["bad", "worse", "good", "poor"], "each in its own words"
    turns = 2 if plans else 3
    assert [len(one.turns) for one in groups[0]] == [turns] * 4
    assert [sampler.asked for sampler in samplers] == [2 * turns] * 4, "nothing that stands is written again"
    assert count_tokens(played[0], lambda text: 1) == 4 * turns, "what was given up is paid for, and nothing twice"
    assert len(choose_best(groups, SimpleNamespace(complete=judge))) == 2  # type: ignore[arg-type]
