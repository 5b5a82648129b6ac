"""Off-policy estimates: intervals hold the truth, which simulation knows, and thin logs are refused."""

import numpy as np
import pytest
from harr_traffic.estimate import check_support, effective, estimates, interval
from numpy.typing import NDArray

from harr.errors import CorpusError

CONTEXTS, ACTIONS, SESSIONS = 40, 6, 300
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(CONTEXTS, ACTIONS))
WORTH = 1 / (1 + np.exp(-1.5 * RNG.normal(size=(CONTEXTS, ACTIONS)) - LOGITS))
"""The chance that an action is worth 1; the logging policy knows something of it."""
POLICIES = {"sharper": 2.0 * LOGITS, "better": LOGITS + 1.5 * (WORTH - 0.5), "worse": LOGITS - 2.0 * (WORTH - 0.5)}


def chances(logits_CA: NDArray[np.float64]) -> NDArray[np.float64]:
    raised = np.exp(logits_CA - logits_CA.max(-1, keepdims=True))
    normal: NDArray[np.float64] = raised / raised.sum(-1, keepdims=True)
    return normal


@pytest.mark.parametrize("name", POLICIES)
def test_intervals_hold_the_truth(name: str) -> None:
    """200 logs of 300 sessions, two searches each of which the second is worth the more, the better the first was."""
    logging_CA, wanted_CA = chances(LOGITS), chances(POLICIES[name])
    truth = float((wanted_CA * WORTH).sum(-1).mean())
    kept, gained, spans = dict.fromkeys(("ips", "snips", "dr"), 0), dict.fromkeys(("ips", "snips", "dr"), 0), {}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        context_B = rng.integers(CONTEXTS, size=2 * SESSIONS)
        context_B[1::2] = np.where(rng.random(SESSIONS) < 0.5, context_B[::2], context_B[1::2])
        action_B = (rng.random((2 * SESSIONS, 1)) > logging_CA[context_B].cumsum(-1)).sum(-1)
        score_B = (rng.random(2 * SESSIONS) < WORTH[context_B, action_B]).astype(np.float64)
        weight_B = wanted_CA[context_B, action_B] / logging_CA[context_B, action_B]
        feature_B = LOGITS[context_B, action_B]
        expected_B = (wanted_CA * LOGITS).sum(-1)[context_B]
        group_B = np.repeat(np.arange(SESSIONS), 2)
        check_support(weight_B, group_B)
        found = estimates(weight_B, score_B, group_B, feature_B[:, None], expected_B[:, None])
        for kind, one in found.items():
            kept[kind] += one.low <= truth <= one.high
            gained[kind] += one.gain_low <= truth - float((logging_CA * WORTH).sum(-1).mean()) <= one.gain_high
            spans[kind] = spans.get(kind, 0.0) + one.high - one.low
    assert min(kept.values()) >= 180 and min(gained.values()) >= 180, (kept, gained)
    assert spans["dr"] < spans["snips"], "a prediction takes chance away"


def test_thin_logs_are_refused() -> None:
    few = np.ones(1000)
    with pytest.raises(CorpusError, match="20 questions were explored and have outcomes, and at least 50"):
        check_support(few, np.arange(1000) % 20)
    decided = np.full(1000, 0.01)
    decided[:10] = 99.0
    with pytest.raises(CorpusError, match="1000 rows count as 10, since it would choose otherwise"):
        check_support(decided, np.arange(1000))
    with pytest.raises(CorpusError, match=r"its mean weight is 0\.50, not 1 within"):
        check_support(np.tile([0.4, 0.6], 500), np.arange(1000))
    assert effective(np.zeros(3)) == 0.0


def test_rows_of_one_question_are_not_independent() -> None:
    score_B = np.repeat([0.0, 1.0] * 50, 10)
    _, low, high = interval(score_B, np.arange(1000))
    mean, wide_low, wide_high = interval(score_B, np.repeat(np.arange(100), 10))
    assert mean == 0.5 and wide_high - wide_low > 3.0 * (high - low)
