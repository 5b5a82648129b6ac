"""How often one test set was used: every further candidate is tested at a stricter level, until the set is used up.

Of many equal candidates, each tested at one-sided 2.5 %, one in forty beats the champion by luck. So the level is
spent: the j-th distinct candidate compared on the same questions is tested at ``ALPHA / (j (j + 1))``, divided by the
number of arms of which it was the best. Over all future candidates this sums to ALPHA. It is alpha-spending for tests
that arrive one by one, the online Bonferroni procedure (Foster and Stine 2008, "Alpha-investing"; for the family-wise
error Tian and Ramdas 2021, arXiv 1910.04900): by the union bound, the chance of ever promoting a candidate without
merit is at most ALPHA, however many there are. This assumes that candidates are not fitted to the test questions; a
verdict reveals only yes or no.
"""

import json
from typing import Any

from harr.io.files import fingerprint
from tasks.registry.history import read_list
from tasks.tracking.errors import look_up

ALPHA = 0.025
"""One-sided; the first candidate is thus tested with an interval of 97.5 %."""
MOST = 20
"""Candidates after which a test set is used up: the level is then below 1 in 17,000."""
BEYOND = 10
"""Least number of draws that an interval leaves out at either end; with fewer, its end would be a matter of luck."""


def number_of(client: Any, version: Any) -> int:
    """Return the number of this version's attempt on its test questions, from 1; the same evaluation counts once."""
    past, mark = _read_past(client, version)
    return past.index(mark) + 1 if mark in past else len(past) + 1


def note(client: Any, version: Any) -> None:
    """Note that a version was compared on its test questions."""
    past, mark = _read_past(client, version)
    if mark not in past:
        client.set_registered_model_tag(version.name, _tag(version), json.dumps([*past, mark]))


def level(number: int, arms: int = 1) -> float:
    """Return the one-sided level of the ``number``-th attempt, by the best of so many ``arms``.

    >>> [level(j) for j in (1, 2, 4)], round(sum(map(level, range(1, 10_000))), 4), level(1, arms=5)
    ([0.0125, 0.004166666666666667, 0.00125], 0.025, 0.0025)
    """
    return ALPHA / (number * (number + 1) * arms)


def draws(tail: float, resamples: int) -> int:
    """Return how many draws an interval that leaves out ``tail`` needs, at least ``resamples``.

    >>> draws(level(1), 10_000), draws(level(10), 10_000)
    (10000, 44000)
    """
    return max(resamples, round(BEYOND / tail))


def _read_past(client: Any, version: Any) -> tuple[list[str], str]:
    model = look_up(client.get_registered_model, version.name)
    mark = fingerprint([version.tags.get("model"), version.tags.get("results")])[:8]
    return read_list(model.tags.get(_tag(version), "")) if model else [], mark


def _tag(version: Any) -> str:
    return f"harr.attempts.{str(version.tags.get('questions', 'unknown'))[:16]}"
