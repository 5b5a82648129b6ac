"""Replay: the chances of a model over logged candidates, against what playing it earns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from harr_traffic.log import Feedback, LoggedSearch
from harr_traffic.replay import replay

from harr.errors import CorpusError, ParamsError
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.state import reads
from harr.rag.setup import Setup
from harr.types import Search

ROUNDS = 12


def logged(setup: Setup, *, k: int = 2, keep: int = 0) -> tuple[list[LoggedSearch], dict[str, Feedback]]:
    """A log of every question in several forms, whose first drawn passage was right or was not."""
    policy: DensePolicy = replace(setup.retriever, keep=keep)
    searches, outcomes = [], {}
    for number in range(ROUNDS):
        asked = [Search(q, f"{q.text} {number}", k=k) for q in setup.questions]
        for search, found in zip(asked, policy.retrieve(asked), strict=True):
            name = f"s{len(searches)}"
            pool = tuple(passage.id for passage in policy.passages.take(found.pool))
            chosen = tuple(passage.id for passage in found.passages)
            state_reads = reads(policy.style, policy.history)
            searches.append(
                LoggedSearch(
                    *(name, 0.0, "1", state_reads, search.query, search.query, found.state, chosen),
                    *(pool, found.logprob, found.kept),
                )
            )
            outcomes[name] = Feedback(name, 0.0, float(chosen[keep] in search.question.gold_ids))
    return searches, outcomes


def test_the_model_that_chose_earned_what_it_earned(setup: Setup) -> None:
    found = replay(setup.retriever, *logged(setup))
    assert found.effective == pytest.approx(found.rows, rel=1e-3) and found.rows == ROUNDS * len(setup.questions)
    assert found.outside == 0.0
    for name, one in found.found.items():
        assert one.gain_low - 2e-3 <= 0.0 <= one.gain_high + 2e-3
        assert one.mean == pytest.approx(found.served[0], abs=0.03 if name == "dr" else 2e-3)
    assert found.lines()[0].startswith("served") and "count as" in found.lines()[-1]


@pytest.mark.parametrize("keep", [0, 1])
def test_another_temperature_earns_what_playing_it_earns(setup: Setup, keep: int) -> None:
    """The truth is exact: the chance of every first passage, and of every second where the first is kept, under the
    candidate."""
    searches, outcomes = logged(setup, keep=keep)
    candidate: DensePolicy = replace(setup.retriever, temperature=0.03)
    gold = {f"{q.text} {n}": set(q.gold_ids) for q in setup.questions for n in range(ROUNDS)}
    chances = []
    for one in searches:
        rows = candidate.passages.rows_of(one.pool)
        pool = np.array([[rows[pid] for pid in one.pool]])
        state = torch.from_numpy(candidate.encode([one.state]))
        first = candidate.logits(state, torch.tensor([0]), pool)[:, keep:].softmax(-1)[0]
        ids = one.pool[keep:]
        chances.append(sum(float(p) for p, pid in zip(first, ids, strict=True) if pid in gold[one.question]))
    found = replay(candidate, searches, outcomes)
    truth = float(np.mean(chances))
    assert keep or truth > found.served[0]
    assert found.apart == 0
    for (
        one
    ) in found.found.values():  # three standard errors: of six estimates in a test one may miss an interval of 95 %
        assert abs(one.mean - truth) <= 3 * (one.high - one.low) / 3.92 and one.high - one.low < 0.5


def test_a_choice_after_other_first_passages_is_none_of_the_model(setup: Setup) -> None:
    """A few such searches are left out and counted; a model with other first passages is refused in one line."""
    searches, outcomes = logged(setup, k=3, keep=1)
    few = len(searches) // 40
    turned = [
        replace(one, chosen=(one.pool[1], one.pool[0], *one.pool[2:3]), pool=(one.pool[1], one.pool[0], *one.pool[2:]))
        for one in searches
    ]
    found = replay(setup.retriever, [*turned[:few], *searches[few:]], outcomes)
    assert (found.apart, found.rows) == (few, len(searches) - few)
    assert found.effective == pytest.approx(found.rows, rel=1e-3)
    line = f"left out: {few} explored searches whose kept first passages this model would have otherwise"
    assert found.lines()[-1] == line
    other = replace(setup.retriever, temperature=-0.05)
    for policy, log in ((other, searches), (setup.retriever, turned)):
        with pytest.raises(CorpusError, match=r"^in (99|100)\.\d % of the explored searches this model"):
            replay(policy, log, outcomes)


def test_what_cannot_be_judged_is_refused(setup: Setup) -> None:
    searches, outcomes = logged(setup)
    for change, error, message in (
        ({"style": "question_query"}, ParamsError, "the log has states of sep with history, and the model reads"),
        ({"link_features": object()}, ParamsError, "weighs links of its candidates"),
        ({"temperature": -0.02}, CorpusError, "the log says too little of this model|does not hold what this model"),
    ):
        policy = DensePolicy(**{**vars(setup.retriever), **change})  # type: ignore[arg-type]
        with pytest.raises(error, match=message):
            replay(policy, searches, outcomes)
    with pytest.raises(ParamsError, match="no states"):
        replay(setup.retriever, [replace(one, state="") for one in searches], outcomes)
    with pytest.raises(CorpusError, match=r"no search of .* was both explored and has an outcome"):
        replay(setup.retriever, searches, {})
