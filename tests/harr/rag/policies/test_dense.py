"""The dense policy over a real index: ranking, exclusion, given candidates, and stored actions."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from harr.embed.encoder import Encoder
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.state import state_text
from harr.rag.retrieval.bm25 import BM25Retriever
from harr.rag.retrieval.hybrid import Fusion
from harr.rag.setup import Setup
from harr.types import Hop, Search


def greedy(setup: Setup, **changes: object) -> DensePolicy:
    return DensePolicy(**{**vars(setup.retriever), "sampling": None, **changes})


def test_greedy_is_the_exact_ranking(setup: Setup) -> None:
    policy = greedy(setup)
    searches = [Search(question, question.text, k=5) for question in setup.questions]
    retrievals = policy.retrieve(searches)
    states_BD = policy.encoder.encode([search.query for search in searches])
    scores = states_BD @ policy.vectors.take(np.arange(policy.vectors.rows)).T
    ids = [passage.id for passage in policy.passages.take(range(policy.vectors.rows))]
    for row, retrieval in zip(scores, retrievals, strict=True):
        best = np.argsort(-row, kind="stable")[:5]
        assert [passage.id for passage in retrieval.passages] == [ids[i] for i in best]
        assert retrieval.logprob is None and retrieval.pool == ()


@pytest.mark.fault(15)
@pytest.mark.parametrize("fusion", [Fusion(), Fusion(0.5, 0.5), Fusion(0.0, 1.0)], ids=["dense", "hybrid", "sparse"])
def test_a_search_finds_in_a_batch_what_it_finds_alone_and_nothing_that_is_excluded(
    setup: Setup, fusion: Fusion
) -> None:
    policy = greedy(setup, fusion=fusion, pool=3)
    first, second = setup.questions[:2]
    gone = frozenset({policy.retrieve([Search(first, first.text, k=1)])[0].passages[0].id, "a deleted passage"})
    asked = [Search(first, first.text, k=2), Search(second, second.text, k=12), Search(first, first.text, k=9)]
    asked += [replace(one, exclude_ids=gone) for one in asked]
    together = [one.passages for one in policy.retrieve(asked)]
    assert together == [policy.retrieve([one])[0].passages for one in asked]
    assert not gone & {passage.id for found in together[3:] for passage in found}
    if not fusion.sparse:
        assert [len(found) for found in together] == [2, 12, 9] * 2


def test_an_arm_without_history_has_a_prompt_of_its_own(setup: Setup, tiny: str) -> None:
    """The prompt for histories precedes only a state with a history; the vector is that of prompt and state."""
    prompts = {"query_prompt": "Instruct: with history\n", "plain_prompt": "Instruct: alone\n"}
    encoder = Encoder(tiny, max_tokens=64, **prompts)
    search = Search(setup.questions[0], "Where is it?", (Hop("Who?", "Ada"),), thought="I look.")
    for style, history, prompt in (
        ("json", True, prompts["query_prompt"]),
        ("thought", True, prompts["query_prompt"]),
        ("json", False, prompts["plain_prompt"]),
    ):
        policy = greedy(setup, encoder=encoder, style=style, history=history)
        (found,) = policy.retrieve([search])
        assert found.state == state_text(search, style=style, history=history)
        (vector_D,) = encoder.encode([prompt + found.state])
        rows = policy.passages.rows_of([found.passages[0].id])
        score = float(vector_D @ policy.vectors.take(np.array(list(rows.values())))[0])
        assert found.scores[0] == pytest.approx(score, abs=1e-5)


def test_given_candidates_are_the_only_ones(setup: Setup) -> None:
    policy = greedy(setup, candidates="question")
    question = setup.questions[3]
    retrieval = policy.retrieve([Search(question, question.text, k=10)])[0]
    assert {passage.id for passage in retrieval.passages} == set(question.candidate_ids)


def test_a_sample_stores_its_action_and_its_probability(setup: Setup) -> None:
    policy = setup.retriever
    search = Search(setup.questions[0], setup.questions[0].text, (Hop("", "Ashford: a town."),), k=2)
    retrievals = policy.retrieve([search] * 64)
    assert len({retrieval.passages[0].id for retrieval in retrievals}) > 1, "rollouts of one state differ"
    for retrieval in retrievals[:3]:
        assert tuple(policy.passages.take(retrieval.pool[:2])) == retrieval.passages
        assert len(retrieval.pool) == policy.pool and len(set(retrieval.pool)) == policy.pool
        with torch.no_grad():
            states = policy.encoder.forward([retrieval.state], max_tokens=policy.max_tokens)
            logits = policy.logits(states, torch.tensor([0]), np.array([retrieval.pool]))
        weights = torch.exp(logits[0] - logits[0].max())
        by_hand = (weights[0] / weights.sum()).log() + (weights[1] / weights[1:].sum()).log()
        assert retrieval.logprob == pytest.approx(by_hand.item(), abs=1e-3)


def test_it_reports_which_gold_passages_it_could_have_chosen(setup: Setup) -> None:
    """The gold among the nearest of the pool, taken or not; a sampling rollout does not look."""
    searches = [Search(question, question.text, k=1) for question in setup.questions]
    for pool in (1, 4):
        nearest = greedy(setup, pool=pool).retrieve([Search(one.question, one.query, k=pool) for one in searches])
        for found, near in zip(greedy(setup, pool=pool).retrieve(searches), nearest, strict=True):
            assert found.reached == frozenset(passage.id for passage in near.passages) & near.reached
        assert [one.reached for one in nearest] == [
            frozenset(search.question.gold_ids) & {passage.id for passage in near.passages}
            for search, near in zip(searches, nearest, strict=True)
        ]
    assert setup.policy.retrieve(searches)[0].reached is None


def test_bm25_finds_the_town_and_skips_what_was_taken(setup: Setup) -> None:
    bm25 = BM25Retriever(setup.policy.index, setup.policy.passages, k=2, candidates="corpus")
    question = setup.questions[0]
    both = bm25.retrieve([Search(question, "Ashford")])[0].passages
    assert {passage.title for passage in both} == {"Ashford"}
    taken = frozenset({both[0].id})
    rest = bm25.retrieve([Search(question, "Ashford", exclude_ids=taken)])[0].passages
    assert [passage.id for passage in rest] == [both[1].id]
