"""Four episodes, every measure worked by hand."""

import pytest

from harr.scoring.ranking import all_gold, hop_recall, recall, recall_at, reciprocal_rank
from harr.types import Episode, Passage, Question, Retrieval, Search, Step


def episode(gold: str, *steps: str) -> Episode:
    """One letter is one passage; a word is one search's passages in order."""
    question = Question("q", "Who?", gold_ids=tuple(gold))
    return Episode(
        question,
        tuple(Step(Search(question, "Who?"), Retrieval(tuple(Passage(name, "") for name in step))) for step in steps),
    )


MEASURED = [  # episode, recall, all_gold, recall at 2, recall at 5, reciprocal rank, hops 1, 2, 3
    (episode("ab", "xya", "bxz"), 1.0, 1.0, 0.0, 1.0, 1 / 3, (1.0, 1.0, None)),  # x y a b z: repeats do not count
    (episode("abc", "cx", "yx"), 1 / 3, 0.0, 1 / 3, None, 1.0, (0.0, 0.0, 1.0)),
    (episode("ab"), 0.0, 0.0, None, None, 0.0, (0.0, 0.0, None)),  # never searched
    (episode("", "ab"), None, None, None, None, None, (None, None, None)),  # no gold
]


@pytest.mark.parametrize(("played", "share", "every", "at_2", "at_5", "reciprocal", "hops"), MEASURED)
def test_measures(
    played: Episode,
    share: float | None,
    every: float | None,
    at_2: float | None,
    at_5: float | None,
    reciprocal: float | None,
    hops: tuple[float | None, ...],
) -> None:
    assert recall(played) == share
    assert all_gold(played) == every
    assert recall_at(played, 2) == at_2
    assert recall_at(played, 5) == at_5
    assert reciprocal_rank(played) == reciprocal
    assert tuple(hop_recall(played, hop) for hop in (1, 2, 3)) == hops
