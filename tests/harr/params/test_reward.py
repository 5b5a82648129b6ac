"""Section reward: the terms that a reward can be made of."""

from pathlib import Path
from typing import Any

import pytest
from parameters import GOOD, SERVER, load

from harr.errors import ParamsError
from harr.params.reward import COSTS, TERM_NAMES
from harr.rag.scoring.reward import BATCHED
from harr.rag.scoring.terms import STEP_TERMS, TERMS


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ({"terms": {"anser_f1": 1}}, "reward: unknown term anser_f1 in terms; known: answer_f1, answer_em"),
        ({"terms": {"nDCG@20": 1}}, "reward.terms: nDCG@20 is not measured; known: R@2, R@5, R@10, Success@5, nDCG@10"),
        ({"terms": {"RR": 1, "reciprocal_rank": 1}}, "reward.terms: a measure is there twice among RR, recip"),
        ({"terms": {"recall": 0, "mrr": [{"weight": 0, "end": 3}]}}, r"not all 0 \(found \[0.0, 0.0\]\)"),
        ({"terms": {"recall": float("inf")}}, r"reward: terms should be a finite number"),
        ({"terms": {"judge": 1}}, "the term judge needs a model; give reward.judge"),
        ({"terms": {"judge": 1, "semantic": 1}}, "the term judge needs a model; give reward.judge"),
        ({"terms": {"recall": 1}, "judge": SERVER}, "judge is asked by the terms judge and semantic only"),
        ({"terms": {"semantic": 1, "semantic_f1": 1}}, "the term semantic is semantic_f1; leave one of them out"),
        ({"terms": {"recall": 1, "search_cost": 0.1}, "mix": "l2"}, "mix l2 takes .* leave search_cost out"),
        ({"terms": {"recall": 1, "misses": -0.1}, "mix": "l2"}, "mix l2 takes .* leave misses out"),
    ],
)
def test_a_reward_that_nothing_could_be_scored_by(section: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=line) as error:
        load({**GOOD, "reward": section}, tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "section",
    [
        {"terms": {"semantic": 1}},
        {"terms": {"semantic": 1}, "judge": SERVER},
        {"terms": {"judge": 1, "recall": 0}, "judge": SERVER},
        {"terms": {"my.terms:mine": 1, "search_cost": 0.1}},
        {"terms": {"recall": 1, "answer_em": 2}, "mix": "l2"},
    ],
)
def test_a_reward_that_can_be_scored(section: dict[str, Any], tmp_path: Path) -> None:
    load({**GOOD, "reward": section}, tmp_path)


def test_measures_may_have_the_names_of_ir_measures(tmp_path: Path) -> None:
    named = {"reward": {"terms": {"nDCG@10": 1.0, "R@5": 0.5}}}
    assert load({**GOOD, **named}, tmp_path).headline == "ndcg_at_10"
    decided = {"metric": "Success@5", "veto": {"RR": -0.01}}
    found = load({**GOOD, **named, "tracking": decided}, tmp_path)
    assert found.headline == "success_at_5" and found.tracking.veto == {"reciprocal_rank": -0.01}
    with pytest.raises(ParamsError, match=r"tracking.metric: P@5 is not measured; known: R@2"):
        load({**GOOD, "tracking": {"metric": "P@5"}}, tmp_path)


def test_the_names_of_terms_are_those_that_are_scored() -> None:
    assert set(TERM_NAMES) == {*TERMS, *STEP_TERMS, *BATCHED} and set(COSTS) <= set(TERMS)


def test_a_weight_that_ends_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="starts at step 5 cannot end at step 5"):
        load({**GOOD, "reward": {"terms": {"recall": {"weight": 1, "start": 5, "end": 5}}}}, tmp_path)
