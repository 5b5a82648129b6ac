"""Arms are played in batches, and sampled for pass@k."""

import pytest
from episodes import Shelf

from harr.evaluate.play import Game, pass_at, pass_rates
from harr.rag.pipelines.pick import pick
from harr.rag.setup import Setup
from harr.types import Question


def test_a_game_plays_in_batches_and_keeps_the_order() -> None:
    questions = [Question(str(number), "Who?", gold_ids=("a",)) for number in range(5)]
    shelf = Shelf()
    episodes = Game("arm", lambda q: pick(q, picks=1), shelf, None).play(questions, batch_size=2)
    assert [episode.question.id for episode in episodes] == list("01234")
    assert shelf.calls == [2, 2, 1]


def test_pass_at_k_against_counting(setup: Setup) -> None:
    """From 4 samples with 2 right, any 2 include a right one in 5 of 6 cases."""
    assert pass_at(4, 2, 2) == pytest.approx(5 / 6)
    assert pass_at(4, 0, 4) == 0.0
    questions = list(setup.questions[:3])
    game = Game("arm", setup.pipeline, setup.retriever, None)
    before = setup.retriever.sampling
    rates = pass_rates(questions, game, samples=4, ks=(1, 4), seed=0)
    assert set(rates) == {question.id for question in questions}
    assert all(0.0 <= row["pass_at_1"] <= row["pass_at_4"] <= 1.0 for row in rates.values())
    assert setup.retriever.sampling is before, "the arm itself plays as it did"
    cold = pass_rates(questions, game, samples=4, ks=(1, 4), seed=0, temperature=1e-6)
    assert all(row["pass_at_1"] == row["pass_at_4"] for row in cold.values()), "all samples are the best"
