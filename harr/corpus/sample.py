"""Samples of questions, drawn by a seed: the first of a file are those that its order puts first."""

import random
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from heapq import nsmallest
from typing import TypeVar

from harr.types import Question

T = TypeVar("T")


def draw_questions(questions: Sequence[Question], count: int, seed: int) -> list[Question]:
    """Return ``count`` questions (0: all) in their order, of every setting and kind as large a share as of all.

    >>> asked = [Question(f"{n}", "Who?", kind="rare" if n < 2 else "common") for n in range(20)]
    >>> drawn = draw_questions(asked, 10, seed=0)
    >>> len(drawn), sum(question.kind == "rare" for question in drawn)
    (10, 1)
    """
    return _stratified(questions, [(question.setting, question.kind) for question in questions], count, seed)


def _stratified(items: Sequence[T], strata: Sequence[Hashable], count: int, seed: int) -> list[T]:
    """Return the items whose place in the shuffled order of their stratum, as a share of it, is least."""
    rng, sizes, taken = random.Random(f"{seed}/questions"), Counter(strata), Counter[Hashable]()
    shuffled = rng.sample(range(len(items)), len(items))
    places: dict[int, tuple[float, float]] = {}
    for item in shuffled:
        stratum = strata[item]
        places[item] = ((taken[stratum] + 0.5) / sizes[stratum], rng.random())
        taken[stratum] += 1
    kept = sorted(shuffled, key=places.__getitem__)[: count or None]
    return [items[place] for place in sorted(kept)]


def draw_rows(rows: Iterable[T], count: int, seed: int) -> Iterable[T]:
    """Return ``count`` rows (0: all) of a stream in their order; at most so many are held.

    >>> len(list(draw_rows(range(1000), 5, seed=0)))
    5
    """
    if not count:
        return rows
    rng = random.Random(f"{seed}/rows")
    kept = nsmallest(count, ((rng.random(), place, row) for place, row in enumerate(rows)), key=lambda one: one[:2])
    return [row for _, _, row in sorted(kept, key=lambda one: one[1])]
