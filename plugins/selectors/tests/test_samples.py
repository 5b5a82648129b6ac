"""Search at test time: every sample plays, what a majority chooses, and what it costs."""

from types import SimpleNamespace
from typing import Any

import pytest
from harr_selectors.samples import majority, play_samples
from letters import OnePassage

from harr.evaluate.play import Game, rates
from harr.rag.pipelines.search_r1 import search_r1
from harr.types import Question
from tasks.samples import count_tokens

ASKED = [Question(f"q{n}", f"Who is {n}?", answers=("Ada",)) for n in range(2)]


def test_every_sample_plays_all_questions() -> None:
    def generator(answer: str) -> Any:
        return SimpleNamespace(complete=lambda requests: [f"<answer>{answer}" for _ in requests])

    game = Game("arm", lambda asked: search_r1(asked, max_searches=1), OnePassage(), None)
    groups = play_samples(ASKED, game, [generator("Ada"), generator("Ben"), generator("Ada")], batch_size=1)
    assert [[one.answer for one in group] for group in groups] == [["Ada", "Ben", "Ada"]] * 2
    assert [group[0].question.id for group in groups] == ["q0", "q1"]
    assert rates(groups, (1, 2))["q1"] == pytest.approx({"pass_at_1": 2 / 3, "pass_at_2": 1.0})
    assert [majority(group).answer for group in groups] == ["Ada", "Ada"]
    assert count_tokens(groups[0], lambda text: len(text.split("<"))) == 6.0
