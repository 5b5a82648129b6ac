"""Four episodes, every measure worked by hand."""

import pytest
from episodes import played

from harr.rag.scoring.ranking import (
    all_gold,
    depth,
    gold_f1,
    hop_recall,
    ndcg_at,
    pool_recall,
    recall,
    recall_at,
    reciprocal_rank,
)
from harr.types import Episode, Passage, Question, Retrieval, Search, Step


def episode(gold: str, *steps: str) -> Episode:
    return played("q", None, *steps, gold=gold)


MEASURED = [  # episode, recall, all_gold, recall at 2, recall at 5, reciprocal rank, hops 1, 2, 3
    (episode("ab", "xya", "bxz"), 1.0, 1.0, 0.0, 1.0, 1 / 3, (1.0, 1.0, None)),  # x y a b z: repeats do not count
    (episode("abc", "cx", "yx"), 1 / 3, 0.0, 1 / 3, 1 / 3, 1.0, (0.0, 0.0, 1.0)),
    (episode("ab"), 0.0, 0.0, 0.0, 0.0, 0.0, (0.0, 0.0, None)),  # never searched
    (episode("", "ab"), None, None, None, None, None, (None, None, None)),  # no gold
]


def test_measures() -> None:
    for one, *expected, hops in MEASURED:
        measured = (recall(one), all_gold(one), recall_at(one, 2), recall_at(one, 5), reciprocal_rank(one))
        assert list(measured) == expected, one
        assert tuple(hop_recall(one, hop) for hop in (1, 2, 3)) == hops, one


def ranked(gold: tuple[str, ...], *ids: str, k: int = 0) -> Episode:
    """Make an episode of one search that asked for ``k`` passages and got ``ids``."""
    question = Question("q", "Who?", gold_ids=gold)
    return Episode(question, (Step(Search(question, "Who?", k=k), Retrieval(tuple(Passage(pid, "") for pid in ids))),))


def test_chunks_of_one_document_count_once() -> None:
    gold = ("d_chunk_0", "d_chunk_1", "d_chunk_2")
    played = ranked(gold, "a_chunk_0", "a_chunk_1", "a_chunk_7", "d_chunk_2", "d_chunk_0", "b_chunk_0")
    assert played.documents == ("a", "d", "b") and played.question.gold_documents == ("d",)
    assert reciprocal_rank(played) == 0.5  # the fourth chunk, but the second document
    assert recall(played) == all_gold(played) == hop_recall(played, 1) == 1.0
    assert hop_recall(played, 2) is None
    assert recall_at(played, 1) == 0.0 and recall_at(played, 2) == 1.0
    assert gold_f1(played) == pytest.approx(0.5)  # one of three documents, but all the gold


def test_ndcg_by_hand() -> None:
    """Gold at ranks 2 and 4 of two: (1/log2 3 + 1/log2 5) / (1 + 1/log2 3)."""
    by_hand = (1 / 1.5849625 + 1 / 2.3219281) / (1 + 1 / 1.5849625)
    assert ndcg_at(ranked(("b", "d"), *"abcde"), 5) == pytest.approx(by_hand, abs=1e-7)
    assert ndcg_at(ranked(("b",), *"bacde"), 5) == 1.0
    assert ndcg_at(ranked(("x",), *"abcde"), 5) == 0.0
    assert ndcg_at(ranked((), *"abcde"), 5) is None


def test_a_ranking_that_ends_early_has_misses() -> None:
    """Ten passages were asked for and two matched: the question counts, as for the other arms."""
    assert ndcg_at(ranked(("x",), "a", "b", k=10), 10) == 0.0
    assert recall_at(ranked(("b",), "a", "b", k=10), 10) == 1.0
    assert (depth(ranked((), "a", "b", k=10)), depth(ranked((), "a", "b"))) == (10, 2)


def test_what_any_search_could_have_chosen_bounds_the_recall() -> None:
    question = Question("q", "Who?", gold_ids=("a", "d_chunk_1", "c"))
    pools = (frozenset({"a"}), frozenset({"d_chunk_1"}), None)
    steps = [Step(Search(question, "Who?"), Retrieval((), reached=pool)) for pool in pools]
    played = Episode(question, tuple(steps))
    assert pool_recall(played) == 2 / 3 and [pool_recall(played, hop) for hop in (1, 2, 3, 4)] == [1.0, 1.0, 0.0, None]
    assert pool_recall(Episode(question, (steps[2],))) is None, "it chose among no candidates"
    assert pool_recall(Episode(Question("q", "Who?"), (steps[0],))) is None, "no gold"
