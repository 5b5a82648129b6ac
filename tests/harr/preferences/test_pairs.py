"""Which query is preferred: the published example, and properties that hold for any scores."""

import random
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from harr.preferences.pairs import chances, next_try, preferences

TRIES = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "b", "c", "d", "e", "Doc 1(Title: x) y"]), st.sampled_from([0.0, 0.25, 0.5, 1.0])
    ),
    max_size=12,
)


def test_the_published_example() -> None:
    """q1 beats q0 and q3 beats q1, while q3 and q0 are not compared; the best is imitated."""
    found = preferences(["q0", "q1", "q1", "q3"], [0.0, 0.5, 0.5, 1.0])
    assert found is not None and found.target == "q3"
    pairs = [(found.responses[chosen], found.responses[rejected]) for chosen, rejected in found.pairs]
    assert pairs == [("q1", "q0"), ("q3", "q1")]


def test_the_next_context_is_drawn_as_published() -> None:
    assert chances([0.0, 0.5]) == {0.0: 0.0, 0.5: 1.0} and chances([0.0, 0.0]) == {0.0: 1.0} and chances([1.0]) == {}
    assert chances([0.25, 0.5]) == pytest.approx({0.25: 0.2, 0.5: 0.8})
    drawn = Counter(next_try([0.25, 0.5, 0.5, 1.0], random.Random(seed)) for seed in range(2000))
    assert [drawn[place] / 2000 for place in range(4)] == pytest.approx([0.2, 0.4, 0.4, 0.0], abs=0.03)
    assert 3 not in drawn


@given(TRIES)
def test_pairs_never_tie(tries: list[tuple[str, float]]) -> None:
    queries, scores = [query for query, _ in tries], [score for _, score in tries]
    found = preferences(queries, scores)
    usable = {query: 0.0 for query in queries if query and "Title" not in query}
    if found is None:
        return
    assert set(found.responses) == set(usable) and len(set(found.responses)) == len(found.responses)
    assert list(found.scores) == sorted(found.scores) and found.target == found.responses[-1]
    assert len(set(found.pairs)) == len(found.pairs)
    for chosen, rejected in found.pairs:
        assert found.scores[chosen] - found.scores[rejected] > 0
        between = {score for score in found.scores if found.scores[rejected] < score < found.scores[chosen]}
        assert not between


@given(TRIES)
def test_no_pair_only_where_all_tie(tries: list[tuple[str, float]]) -> None:
    usable = [(query, score) for query, score in tries if query and "Title" not in query]
    worst = {query: min(score for name, score in usable if name == query) for query, _ in usable}
    found = preferences([query for query, _ in tries], [score for _, score in tries])
    assert (found is None) == (len(set(worst.values())) < 2)
