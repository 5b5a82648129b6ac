"""Seeded stratified samples of questions and rows."""

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappush, heappushpop, nsmallest
from typing import TypeVar

from harr.types import Question

T = TypeVar("T")


def draw_questions(questions: Sequence[Question], count: int, seed: int) -> list[Question]:
    """Return ``count`` questions (0: all) in their order, with the same share of every setting and kind.

    >>> asked = [Question(f"{n}", "Who?", kind="rare" if n < 2 else "common") for n in range(20)]
    >>> drawn = draw_questions(asked, 10, seed=0)
    >>> len(drawn), sum(question.kind == "rare" for question in drawn)
    (10, 1)
    """
    return _sample_strata(questions, [(question.setting, question.kind) for question in questions], count, seed)


def _sample_strata(items: Sequence[T], strata: Sequence[Hashable], count: int, seed: int) -> list[T]:
    """Return the ``count`` items with the lowest relative places in their stratum's shuffled order."""
    rng, sizes, counts = random.Random(f"{seed}/questions"), Counter(strata), Counter[Hashable]()
    shuffled = rng.sample(range(len(items)), len(items))
    places: dict[int, tuple[float, float]] = {}
    for item in shuffled:
        stratum = strata[item]
        places[item] = ((counts[stratum] + 0.5) / sizes[stratum], rng.random())
        counts[stratum] += 1
    chosen = sorted(shuffled, key=places.__getitem__)[: count or None]
    return [items[place] for place in sorted(chosen)]


def draw_rows(
    rows: Iterable[T], count: int, seed: int, stratum: Callable[[T], Hashable] = lambda row: None
) -> Iterable[T]:
    """Return ``count`` rows (0: all) of a stream in their order, with the same share of every ``stratum``; memory holds
    at most ``count`` rows of each stratum.

    >>> drawn = draw_rows(range(1000), 10, seed=0, stratum=lambda row: row < 200)
    >>> len(drawn), sum(row < 200 for row in drawn)
    (10, 2)
    """
    if not count:
        return rows
    rng, sizes = random.Random(f"{seed}/rows"), Counter[Hashable]()
    heaps: dict[Hashable, list[tuple[float, int, T]]] = {}  # each stratum's largest numbers, with place and row
    for place, row in enumerate(rows):
        key = stratum(row)
        sizes[key] += 1
        heap = heaps.setdefault(key, [])
        (heappushpop if len(heap) == count else heappush)(heap, (rng.random(), place, row))
    ranked = (
        ((rank + 0.5) / sizes[key], -number, place, row)
        for key, heap in heaps.items()
        for rank, (number, place, row) in enumerate(sorted(heap, key=lambda entry: entry[:2], reverse=True))
    )
    chosen = nsmallest(count, ranked, key=lambda entry: entry[:3])
    return [row for *_, row in sorted(chosen, key=lambda entry: entry[2])]
