"""Advice: each rule speaks where its figures are so, and only there."""

from dataclasses import replace
from typing import Any

from harr_diagnose.advice import Figures, advice

TRAIN = Figures(
    metric="answer F1",
    best="last_answer",
    means={"frozen": 0.3, "last_answer": 0.45, "oracle_query": 0.94},
    dense="frozen",
    gain_of_best={"gain": 0.15, "low": 0.1, "high": 0.2},
    pool=30,
    all_gold={30: 0.8, 60: 0.82, 120: 0.84},
    found=0.45,
    later_queries=300.0,
    ambiguous_share=0.4,
    rolled_out=64.0,
    disagreeing=0.5,
    all_right=0.1,
    detectable=0.04,
    method="grpo",
    needed=260,
)

READS = {"gain": 0.3, "low": 0.2, "high": 0.4, "gold": 0.5, "nothing": 0.2, "from_memory": 0.1, "with_gold": 0.4}
PAID = {"last_run": {"gain": 0.1, "low": 0.05, "high": 0.2}}


def test_a_rule_speaks_where_its_figures_are_so_and_there_is_always_advice() -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({}, "train: grpo; 50.0 %", "retriever.pool from"),
        ({}, "begin with last_answer: it stands 15.0 points [10.0, 20.0] above frozen", "is enough"),
        ({"means": {"last_answer": 0.95, "frozen": 0.3}}, "last_answer is enough", "train: grpo"),
        ({"gain_of_best": {"gain": 0.1, "low": -0.01, "high": 0.2}}, "train: grpo", "begin with"),
        ({"all_gold": {30: 0.5, 60: 0.54, 120: 0.7}}, "raise retriever.pool from 30 to 120", "is enough"),
        ({"disagreeing": 0.05, "all_right": 0.8}, "add hard questions", "train: grpo"),
        ({"disagreeing": 0.05, "all_right": 0.0}, "raise retriever.temperature", "train: grpo"),
        ({"disagreeing": 0.0, "all_right": 0.0, "rolled_out": 0.0}, "begin with", "of the questions have rollouts"),
        ({"disagreeing": 0.05, "all_right": 0.0, "warm_start": True}, "train: grpo; after the warm start", "easier"),
        ({"disagreeing": 0.05, "all_right": 0.0, "warm_start": True}, "what train.warm_start alone reaches", "easier"),
        ({"disagreeing": 0.0, "all_right": 0.9, "warm_start": True}, "add hard questions", "train: grpo"),
        ({"by_share": True}, "the pool holds 35.0 % of the gold beyond", "questions the pool"),
        ({"by_share": True, "all_gold": {30: 0.5, 60: 0.6}}, "60.0 % of the gold is among the nearest", "all gold"),
        ({"reader": READS}, "answers tell what was found: the reader's answer F1 is 50.0 with", "better reader"),
        (
            {"reader": READS},
            "it answers 10.0 % of the questions from memory and 40.0 % only with the gold",
            "better reader",
        ),
        ({"reader": READS | {"high": 0.19}}, "take a better reader, or reward recall of gold", "answers tell"),
        ({}, "train: grpo", "reader"),
        ({"ambiguous_share": 0.01}, "do not train", "read the history"),
        ({"detectable": 0.08}, "5 points need about 260", "is enough"),
        ({"all_gold": {}}, "train: grpo", "the pool holds"),
        ({"found": 0.79}, "begin with", "train: grpo"),
        (
            {"ambiguous_share": 0.0},
            "do not train grpo as it stands; `harr promote --arm last_answer` and",
            "train: grpo",
        ),
        (
            {"ambiguous_share": 0.0, "served": "added"},
            "stands; add last_answer to evaluate.arms, and `harr prom",
            "; `",
        ),
        ({"ambiguous_share": 0.0, "served": "no"}, "do not train grpo as it stands", "harr promote"),
        ({"means": {"last_answer": 0.95}, "served": "no"}, "last_answer is enough", "harr promote"),
        ({"ambiguous_share": 0.0, "links": True}, "train: grpo", "do not train"),
        ({"ambiguous_share": 0.0, "language_model": True}, "train: grpo", "do not train"),
        ({"ambiguous_share": 0.0, "gain_of_best": {}}, "train: grpo", "do not train"),
        ({"last_run": {"gain": -0.1, "low": -0.2, "high": 0.1}}, "trained did not surely pass the best", "train: grpo"),
        ({"last_run": {"gain": -0.1, "low": -0.2, "high": -0.1}}, "stayed behind the best arm without", "train: grpo"),
        (
            PAID,
            "passed the best arm without training by +10.0",
            "do not",
        ),
        ({**PAID, "means": {"last_answer": 0.95, "frozen": 0.3}}, "passed the best arm", "is enough"),
        ({**PAID, "ambiguous_share": 0.0}, "train: grpo", "do not train"),
    ]
    for changed, said, unsaid in cases:
        text = "\n".join(advice(replace(TRAIN, **changed)))
        assert said in text and unsaid not in text, changed
    nothing = replace(TRAIN, gain_of_best={}, ambiguous_share=0.0, found=0.8)
    assert advice(nothing) == ["training can add little: last_answer finds nearly all that its pool holds"]
