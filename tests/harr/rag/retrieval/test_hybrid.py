"""Fusion against numbers worked by hand and a slow twin, and hybrid search on a real index."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_hand import Fixed
from hypothesis import given, settings, strategies as st

from harr.rag.policies.dense import DensePolicy
from harr.rag.retrieval.bm25 import BM25Retriever
from harr.rag.retrieval.hybrid import DENSE, Fusion, HybridRetriever, fuse, fusion_of
from harr.rag.setup import Setup
from harr.types import Passage, Question, Search

HYBRID = fusion_of("hybrid", "weighted", (0.8, 0.2))
RANKINGS = st.lists(st.lists(st.integers(0, 12), unique=True, max_size=8), min_size=1, max_size=4)


def test_the_published_example_keeps_its_order_to_the_end() -> None:
    dense, sparse = (Fixed(*(Passage(name, name) for name in ids)) for ids in ("abc", "bd"))
    retriever = HybridRetriever(dense, sparse, HYBRID, k=4, depth=10)
    question = Question("q", "Who?")
    asked = [Search(question, "Who?"), Search(question, "Who?", k=2), Search(question, "Who?", (), frozenset("b"))]
    found = [[passage.id for passage in one.passages] for one in retriever.retrieve(asked)]
    assert found == [list("abcd"), list("ab"), list("acd")]
    for side in (dense, sparse):
        assert [[search.k for search in batch] for batch in side.batches] == [[10, 10, 10]], "one call a side"


def test_fusion_by_hand() -> None:
    """Reciprocal rank: b has 1/62 + 1/61, a 1/61, d 1/62, c 1/63. Ties go by number: .8 / 4 = .2 / 1."""
    rrf = fusion_of("hybrid", "rrf", (0.8, 0.2))
    rows, scores = fuse([(np.array([[0, 1, 2]]), rrf.dense), (np.array([[1, 3]]), rrf.sparse)], 9, offset=rrf.offset)
    assert rows.tolist() == [[1, 0, 3, 2, -1, -1, -1, -1, -1]]
    assert scores[0, :4] == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63], abs=1e-9)
    rows, _ = fuse([(np.array([[9, 8, 7, 6]]), 0.8), (np.array([[2]]), 0.2)], 5)
    assert rows.tolist() == [[9, 8, 7, 2, 6]]
    rows, _ = fuse([(np.array([[9, 8]]), 1.0), (np.array([[4, 5]]), 1.0)], 4)
    assert rows.tolist() == [[4, 9, 5, 8]]


@settings(deadline=None, max_examples=200)
@given(dense=RANKINGS, sparse=RANKINGS, n=st.integers(1, 9), offset=st.sampled_from([1, 61]))
def test_fusion_is_that_of_a_slow_twin(dense: list[list[int]], sparse: list[list[int]], n: int, offset: int) -> None:
    count = min(len(dense), len(sparse))
    tables = []
    for rankings in (dense[:count], sparse[:count]):
        table = np.full((count, 8), -1)
        for row, ranking in zip(table, rankings, strict=True):
            row[: len(ranking)] = ranking
        tables.append(table)
    found, _ = fuse([(tables[0], 0.8), (tables[1], 0.2)], n, offset=offset)
    for q in range(count):
        scores: dict[int, float] = {}
        for ranking, weight in ((dense[q], 0.8), (sparse[q], 0.2)):
            for rank, row in enumerate(ranking):
                scores[row] = scores.get(row, 0.0) + weight / (offset + rank)
        best = sorted(scores, key=lambda row: (-round(scores[row], 9), row))[:n]
        assert [row for row in found[q].tolist() if row >= 0] == best


@pytest.mark.parametrize("fusion", [DENSE, Fusion(0.0, 1.0), HYBRID], ids=["dense", "sparse", "hybrid"])
def test_a_policy_draws_its_pool_from_the_search(setup: Setup, fusion: Fusion, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search draws the pool; choice and learning use vectors."""
    policy = replace(setup.policy, fusion=fusion, history=False)
    index, calls = policy.index, list[str]()
    for name in ("search", "search_text"):
        plain = getattr(index, name)
        monkeypatch.setattr(
            index, name, lambda what, n, name=name, plain=plain: (calls.append(name), plain(what, n))[1]
        )
    searches = [Search(question, question.text) for question in setup.questions for _ in range(2)]
    retrievals = policy.retrieve(searches)
    assert calls == ["search"] * (fusion.dense > 0) + ["search_text"] * (fusion.sparse > 0)
    for search, retrieval in zip(searches, retrievals, strict=True):
        state_1D = policy.encoder.encode([search.query])
        pool = fusion.find(index, state_1D, [search.query], policy.pool)[0]
        assert sorted(retrieval.pool) == sorted(row for row in pool.tolist() if row >= 0)
        with torch.no_grad():
            logits = policy.logits(torch.from_numpy(state_1D), torch.tensor([0]), np.array([retrieval.pool]))[0]
        assert retrieval.logprob == pytest.approx(logits.log_softmax(-1)[0].item(), abs=1e-3)


def test_a_query_that_shares_no_word_has_an_empty_pool(setup: Setup) -> None:
    policy = DensePolicy(**{**vars(setup.retriever), "fusion": Fusion(0.0, 1.0)})
    empty, full = policy.retrieve([Search(setup.questions[0], query) for query in ("xyzzy", "Ashford")])
    assert empty.passages == () and empty.pool == () and empty.logprob == 0.0
    assert {passage.title for passage in full.passages} == {"Ashford"}


def test_whatever_an_agent_may_ask_is_searched(setup: Setup) -> None:
    """As react lets through: any text of one line, at most 2,000 characters."""
    dense = setup.policy.greedy()
    sparse = BM25Retriever(dense.index, dense.passages, k=1, candidates="corpus")
    hybrid = HybridRetriever(dense, sparse, HYBRID, k=2, depth=8)
    odd = ["?", "\x00", "\x1b[2J", "'\"; --", "OR AND NOT", "\u202e\ufeff", "x" * 2000, "🩺" * 2000, "{}[]()*~^"]
    asked = [Question("q", query) for query in [*odd, "Ashford in winter"]]
    found = hybrid.retrieve([Search(question, question.text) for question in asked])
    assert all(len(retrieval.passages) == 2 for retrieval in found)
    assert found[-1].passages[0].id == "Ashford-winter"
