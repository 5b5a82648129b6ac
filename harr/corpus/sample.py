"""Samples of questions, drawn by a seed: the first of a file are those that its order puts first."""

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappush, heappushpop, nsmallest
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


def draw_rows(
    rows: Iterable[T], count: int, seed: int, stratum: Callable[[T], Hashable] = lambda row: None
) -> Iterable[T]:
    """Return ``count`` rows (0: all) of a stream in their order, of every ``stratum`` as large a share as of all; at
    most so many of each are held.

    >>> drawn = draw_rows(range(1000), 10, seed=0, stratum=lambda row: row < 200)
    >>> len(drawn), sum(row < 200 for row in drawn)
    (10, 2)
    """
    if not count:
        return rows
    rng, sizes = random.Random(f"{seed}/rows"), Counter[Hashable]()
    held: dict[Hashable, list[tuple[float, int, T]]] = {}  # of each stratum the greatest numbers, with place and row
    for place, row in enumerate(rows):
        key = stratum(row)
        sizes[key] += 1
        own = held.setdefault(key, [])
        (heappushpop if len(own) == count else heappush)(own, (rng.random(), place, row))
    ranked = (
        ((rank + 0.5) / sizes[key], -number, place, row)
        for key, own in held.items()
        for rank, (number, place, row) in enumerate(sorted(own, key=lambda one: one[:2], reverse=True))
    )
    kept = nsmallest(count, ranked, key=lambda one: one[:3])
    return [row for *_, row in sorted(kept, key=lambda one: one[2])]
