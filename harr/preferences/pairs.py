"""Preferences between sampled queries: LeReT's rules as pure functions (arXiv 2410.23214, sections 3.2 and 3.3)."""

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from harr.types import Passage

DIGITS = 9
"""Number of decimal digits to which scores of the same level agree."""
LEAKED = "(Title: "
"""Text that marks a query as a copy of its passages; such queries are left out."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """A prompt's preferences: its ``responses`` from worst to best with their ``scores``, and pairs of them.

    ``pairs`` are (chosen, rejected), as places in ``responses``. ``target`` is the last of the best.
    """

    responses: tuple[str, ...]
    scores: tuple[float, ...]
    pairs: tuple[tuple[int, int], ...]

    @property
    def target(self) -> str:
        """Return the query to imitate."""
        return self.responses[-1]


def preferences(queries: Sequence[str], scores: Sequence[float]) -> Preferences | None:
    """Return the preferences between one prompt's queries; None without a pair.

    Empty queries and copies of passages are left out; of equal queries the worse one stays. Every query is
    preferred to every query with the next lower score, as published.

    >>> result = preferences(["bad", "mother", "mother", "mother of Ada"], [0.0, 0.5, 0.5, 1.0])
    >>> result.responses, result.pairs, result.target
    (('bad', 'mother', 'mother of Ada'), ((1, 0), (2, 1)), 'mother of Ada')
    """
    ranked_pairs = sorted(zip(queries, scores, strict=True), key=lambda pair: pair[1])
    first: dict[str, float] = {}
    for query, score in ranked_pairs:
        if query and LEAKED not in query:
            first.setdefault(query, round(score, DIGITS))
    ranked, score_levels = list(first.items()), sorted(set(first.values()))
    steps = set(pairwise(score_levels))
    pairs = [
        (better, worse)
        for better, (_, high) in enumerate(ranked)
        for worse, (_, low) in enumerate(ranked)
        if (low, high) in steps
    ]
    if not pairs:
        return None
    return Preferences(tuple(first), tuple(first.values()), tuple(pairs))


def chances(scores: Sequence[float]) -> dict[float, float]:
    """Return the probability that the next hop starts from each level of average precision; {} if all are solved (1).

    As published, it is proportional to the level, plus .5 for the highest; a level of 1 is left out.

    >>> chances([0.0, 0.5, 1.0]), chances([0.25, 0.5]), chances([0.0]), chances([1.0])
    ({0.0: 0.0, 0.5: 1.0}, {0.25: 0.2, 0.5: 0.8}, {0.0: 1.0}, {})
    """
    levels = sorted({round(score, DIGITS) for score in scores} - {1.0})
    weights = {level: level + 0.5 * (level == levels[-1]) for level in levels}
    total = math.fsum(weights.values())
    return {level: weight / total for level, weight in weights.items()}


def next_try(scores: Sequence[float], rng: random.Random) -> int | None:
    """Draw the outcome from which the next hop starts, and return its place; None if all are solved.

    A level is drawn by :func:`chances`, then one of its outcomes uniformly.

    >>> next_try([1.0, 0.0, 0.5], random.Random(0)), next_try([1.0], random.Random(0))
    (2, None)
    """
    level_chances = chances(scores)
    if not level_chances:
        return None
    level = rng.choices(tuple(level_chances), tuple(level_chances.values()))[0]
    return rng.choice([place for place, score in enumerate(scores) if round(score, DIGITS) == level])


def documents_of(passages: Sequence[Passage]) -> list[str]:
    """Return the documents of passages, each at the place of its first passage."""
    return list(dict.fromkeys(passage.document for passage in passages))


def preference_row(hop_row: Mapping[str, Any], held_out: bool) -> dict[str, Any] | None:
    """Return a prompt's row of ``preferences.jsonl``; None if its queries do not differ in score."""
    result = preferences(
        [attempt["query"] for attempt in hop_row["tries"]],
        [attempt["ap"] for attempt in hop_row["tries"]],
    )
    if result is None:
        return None
    return {
        "id": f"{hop_row['question_id']}/{hop_row['hop'] + 1}",
        "question_id": hop_row["question_id"],
        "hop": hop_row["hop"] + 1,
        "split": "held_out" if held_out else "train",
        "prompt": hop_row["prompt"],
        "responses": list(result.responses),
        "scores": list(result.scores),
        "pairs": [list(pair) for pair in result.pairs],
        "sft_target": result.target,
    }


def statistics_row(name: str, values: Sequence[float], held_out: set[str], learnt: set[str]) -> dict[str, Any]:
    """Return the statistics of a question's samples, in the format of the filter's statistics."""
    mean, std = statistics.fmean(values), statistics.pstdev(values)
    agreement = "all right" if mean == 1 else "all wrong" if mean == 0 else "all alike"
    is_learnt = name in learnt
    reason = "queries differ" if is_learnt else "held out" if name in held_out else agreement
    return {"id": name, "reward_mean": mean, "reward_std": std, "kept": is_learnt, "reason": reason}


def explain_none(hop_rows: Sequence[Mapping[str, Any]], held_out: set[str], held_rows: int) -> str:
    """Return why the samples contain no preference, and what to do about it."""
    learnable = [hop_row for hop_row in hop_rows if hop_row["question_id"] not in held_out]
    if held_rows:
        return (
            f"queries differ at {held_rows} prompts, all of questions that are held out; lower "
            "filter.preferences.held_out, or try more questions"
        )
    return (
        f"at all {len(learnable)} prompts of questions to learn from every query did as well as every other; raise "
        "filter.preferences.prompts or temperature, or use other questions"
    )
