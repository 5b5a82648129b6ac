"""The table of arms: what bounds the trained arm, and what rivals it."""

from typing import get_args

from harr.arms import ARMS, Rewriting
from harr.params.train import RETRIEVERS
from harr.rag.retrieval.rewritten import RULES


def test_arms_that_do_not_learn_bound_or_rival_the_trained_one() -> None:
    """An oracle is a bound; arms that one run may compare are drawn differently."""
    assert {"", *RULES} == {*get_args(Rewriting)} == {arm.query for arm in ARMS.values()}
    assert [name for name, arm in ARMS.items() if arm.ceiling] == ["oracle_query", "bm25_oracle_query", "gold"]
    looks = [ARMS[name].look for name in RETRIEVERS]
    assert len(set(looks)) == len(looks)
