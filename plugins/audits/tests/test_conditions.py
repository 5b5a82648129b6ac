"""What the gate reads: exploits and answers without their evidence refuse a candidate, and metrics that fell."""

from typing import Any

import pytest
from harr_audits import conditions
from harr_audits.conditions import AUDIT, evidence, exploits, veto

from harr.errors import ParamsError

SWAP: dict[str, Any] = {"fall": 0.6, "low": 0.4, "high": 0.8, "own": 0.7, "swapped": 0.1, "n": 50.0}
EXPLOIT = "no_search: nothing is searched for in 40% of 40"


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes these the facts that were registered with the candidate."""

    def facts(**changes: Any) -> None:
        kept = {AUDIT: {"facts": {"named": {}, "swap": SWAP, **changes}}}
        monkeypatch.setattr(
            conditions, "read_registered", lambda client, candidate, name: kept if name == "audits.json" else {}
        )

    return facts


@pytest.mark.fault(15)
def test_an_exploit_refuses_a_candidate_unless_it_is_allowed(register: Any) -> None:
    register()
    assert exploits(None, None, {}).passed and exploits(None, None, {}).found == "none"
    register(named={"no_search": EXPLOIT})
    refused = exploits(None, None, {})
    assert (refused.passed, refused.found, refused.needed) == (False, EXPLOIT, "none, or its name in allowed")
    allowed = exploits(None, None, {}, allowed=["no_search"])
    assert allowed.passed and allowed.found == "none, no_search is allowed"
    with pytest.raises(ParamsError, match="no exploit is called no_serch; there are answer_in_query, "):
        exploits(None, None, {}, allowed=["no_serch"])


@pytest.mark.fault(15)
def test_answers_that_do_not_fall_without_their_evidence_refuse_a_candidate(register: Any) -> None:
    register()
    assert evidence(None, None, {}).passed
    register(swap=SWAP | {"fall": 0.0, "low": 0.0})
    refused = evidence(None, None, {})
    assert not refused.passed
    assert refused.found.startswith("answers do not depend on passages: answer F1 0.700 falls by 0.000")
    register(swap={"not_asked": "the pipeline gives no answers"})
    assert evidence(None, None, {}).passed
    assert evidence(None, None, {}).found == "not asked: the pipeline gives no answers"


@pytest.mark.fault(15)
def test_a_candidate_without_an_audit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept in ({}, {AUDIT: {"facts": {}}}):
        monkeypatch.setattr(conditions, "read_registered", lambda client, candidate, name, kept=kept: kept)
        for condition in (exploits(None, None, {}), evidence(None, None, {})):
            assert not condition.passed and condition.found == "none recorded"


@pytest.mark.fault(28)
def test_a_veto_stops_a_candidate_that_gains_in_the_metric_that_decides() -> None:
    gains = {"recall": {"gain": 0.5}, "answer_f1": {"gain": -0.6}, "reciprocal_rank": {"gain": 0.1}}
    assert veto(None, None, gains, least={"RR": -0.01}).passed
    strict = veto(None, None, gains, least={"answer_f1": -0.01, "RR": 0.0})
    assert not strict.passed and strict.found == "answer_f1 -0.600, reciprocal_rank +0.100"
    assert strict.needed == "answer_f1 at least -0.010, reciprocal_rank at least +0.000"
    absent = veto(None, None, gains, least={"mrr": 0.0})
    assert not absent.passed and absent.found == "mrr not measured"
