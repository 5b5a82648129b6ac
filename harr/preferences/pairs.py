"""Preferences between queries that were tried: pure rules of LeReT (arXiv 2410.23214, sections 3.2 and 3.3)."""

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from harr.params.filter import PreferencesParams
from harr.rag.scoring.ranking import average_precision
from harr.types import Passage

DIGITS = 9
"""Number of digits in which scores of one level agree."""
LEAKED = "(Title: "
"""A text by which a query repeats the passages that it was shown, and is left out."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a prompt teaches: its ``responses`` from worst to best with their ``scores``, and which is preferred.

    ``pairs`` holds (chosen, rejected), places in ``responses``. ``target`` is the last of the best.
    """

    responses: tuple[str, ...]
    scores: tuple[float, ...]
    pairs: tuple[tuple[int, int], ...]

    @property
    def target(self) -> str:
        """Return the query to imitate."""
        return self.responses[-1]


def preferences(
    queries: Sequence[str],
    scores: Sequence[float],
    *,
    levels: str = "adjacent",
    min_margin: float = 0.0,
    max_pairs: int = 0,
) -> Preferences | None:
    """Return which of the queries of one prompt are preferred to which others; None where there is no pair.

    Queries without text, and those that repeat their passages, are left out; of equal ones the worse stays.
    ``levels``: every query is preferred to every one of the next lower score (``adjacent``, as published) or of any
    lower one (``all``), by ``min_margin`` at least. Of more than ``max_pairs`` (0: no limit) the clearest stay.

    >>> found = preferences(["bad", "mother", "mother", "mother of Ada"], [0.0, 0.5, 0.5, 1.0])
    >>> found.responses, found.pairs, found.target
    (('bad', 'mother', 'mother of Ada'), ((1, 0), (2, 1)), 'mother of Ada')
    >>> preferences(["a", "b"], [0.5, 0.6], min_margin=0.1).pairs  # though 0.6 - 0.5 < 0.1 in floats
    ((1, 0),)
    """
    tried = sorted(zip(queries, scores, strict=True), key=lambda pair: pair[1])
    first: dict[str, float] = {}
    for query, score in tried:
        if query and LEAKED not in query:
            first.setdefault(query, round(score, DIGITS))
    ranked, known = list(first.items()), sorted(set(first.values()))
    steps = set(pairwise(known) if levels == "adjacent" else combinations(known, 2))
    pairs = [
        (better, worse)
        for better, (_, high) in enumerate(ranked)
        for worse, (_, low) in enumerate(ranked)
        if (low, high) in steps and round(high - low, DIGITS) >= min_margin
    ]
    if max_pairs and len(pairs) > max_pairs:
        pairs = sorted(sorted(pairs, key=lambda pair: ranked[pair[1]][1] - ranked[pair[0]][1])[:max_pairs])
    if not pairs:
        return None
    return Preferences(tuple(first), tuple(first.values()), tuple(pairs))


def chances(scores: Sequence[float]) -> dict[float, float]:
    """Return how likely the next hop goes on from each level of average precision; {} where all are solved (1).

    In proportion to the level, of which the highest counts .5 more. As published; a level of 1 is left out.

    >>> chances([0.0, 0.5, 1.0]), chances([0.25, 0.5]), chances([0.0]), chances([1.0])
    ({0.0: 0.0, 0.5: 1.0}, {0.25: 0.2, 0.5: 0.8}, {0.0: 1.0}, {})
    """
    levels = sorted({round(score, DIGITS) for score in scores} - {1.0})
    weights = {level: level + 0.5 * (level == levels[-1]) for level in levels}
    total = math.fsum(weights.values())
    return {level: weight / total for level, weight in weights.items()}


def next_try(scores: Sequence[float], rng: random.Random) -> int | None:
    """Return the place of the outcome that the next hop goes on from; None where all are solved.

    A level is drawn by :func:`chances`, then one of its outcomes, each alike.

    >>> next_try([1.0, 0.0, 0.5], random.Random(0)), next_try([1.0], random.Random(0))
    (2, None)
    """
    known = chances(scores)
    if not known:
        return None
    level = rng.choices(tuple(known), tuple(known.values()))[0]
    return rng.choice([place for place, score in enumerate(scores) if round(score, DIGITS) == level])


def score_of(
    gain: str, gold: Sequence[str], before: Sequence[Passage], found: Sequence[Passage], after: Sequence[Passage]
) -> float:
    """Return what a query is worth: the average precision of what it led to.

    ``accumulated``: of the ranking ``after`` this hop, as published. ``marginal``: of what this hop alone ``found``,
    of the gold that was not there ``before``.

    >>> a, b, x = (Passage(name, "") for name in "abx")
    >>> score_of("accumulated", ["a", "b"], [a], [x, b], [a, x, b]), score_of("marginal", ["a", "b"], [a], [x, b], [])
    (0.8333333333333333, 0.5)
    """
    if gain == "accumulated":
        return average_precision(documents_of(after), gold)
    missing = [name for name in gold if name not in documents_of(before)]
    return average_precision(documents_of(found), missing) if missing else 0.0


def documents_of(passages: Sequence[Passage]) -> list[str]:
    """Return their documents, each where its first passage is."""
    return list(dict.fromkeys(passage.document for passage in passages))


def preference_row(params: PreferencesParams, made: Mapping[str, Any], held_out: bool) -> dict[str, Any] | None:
    """Return the row of ``preferences.jsonl`` that a prompt gives; None where its queries do not differ."""
    found = preferences(
        [tried["query"] for tried in made["tries"]],
        [tried["score"] for tried in made["tries"]],
        levels=params.levels,
        min_margin=params.min_margin,
        max_pairs=params.max_pairs,
    )
    if found is None:
        return None
    return {
        "id": f"{made['question_id']}/{made['hop'] + 1}",
        "question_id": made["question_id"],
        "hop": made["hop"] + 1,
        "split": "held_out" if held_out else "train",
        "prompt": made["prompt"],
        "responses": list(found.responses),
        "scores": list(found.scores),
        "pairs": [list(pair) for pair in found.pairs],
        "sft_target": found.target,
    }


def statistics_row(name: str, values: Sequence[float], held: set[str], learnt: set[str]) -> dict[str, Any]:
    """Return what all tries of a question came to, in the shape of the filter's statistics."""
    mean, std = statistics.fmean(values), statistics.pstdev(values)
    alike = "all right" if mean == 1 else "all wrong" if mean == 0 else "all alike"
    kept = name in learnt
    reason = "queries differ" if kept else "held out" if name in held else alike
    return {"id": name, "reward_mean": mean, "reward_std": std, "kept": kept, "reason": reason}


def why_none(params: PreferencesParams, tried: Sequence[Mapping[str, Any]], held: set[str], held_rows: int) -> str:
    """Return why nothing of what was tried can be learnt, and what to do about it."""
    open_ = [made for made in tried if made["question_id"] not in held]
    every = params.model_copy(update={"min_margin": 0.0, "max_pairs": 0})
    rows = [row for made in open_ if (row := preference_row(every, made, False))]
    gaps = [row["scores"][better] - row["scores"][worse] for row in rows for better, worse in row["pairs"]]
    if gaps:
        return (
            f"filter.preferences.min_margin {params.min_margin:g} left out all {len(gaps)} pairs, whose largest "
            f"difference is {max(gaps):.3g}; lower it"
        )
    if held_rows:
        return (
            f"queries differ at {held_rows} prompts, all of questions that are held out; lower "
            "filter.preferences.held_out, or try more questions"
        )
    return (
        f"at all {len(open_)} prompts of questions to learn from every query did as well as every other; raise "
        "filter.preferences.prompts or temperature, or use other questions"
    )
