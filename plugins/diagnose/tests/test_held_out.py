"""How often advice is right for a training that it was not drawn on, by the table of the README."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Pair:
    """A corpus and recipe: whether an untrained arm surely leads, what else training had, and whether it paid."""

    corpus: str
    advice: str
    leads: bool
    ambiguous: bool
    links: bool
    paid: bool


Rule = Callable[[Pair], bool]
TRAIN: Sequence[Rule] = (
    lambda pair: False,
    lambda pair: True,
    lambda pair: not pair.leads,
    lambda pair: not pair.leads or pair.ambiguous,
    lambda pair: not pair.leads or pair.links,
    lambda pair: not pair.leads or pair.ambiguous or pair.links,
)
"""The lines that could be drawn, the simplest first; the last one is that of advice."""


def pairs() -> list[Pair]:
    """The rows of the table."""
    lines = README.split("| gain [95 %] |\n")[1].split("\n\n")[0].splitlines()
    found: list[Pair] = []
    for name, arm, advice, gain in (line.strip("| ").split(" | ") for line in lines[1:]):
        paid = float(gain.split("[")[1].split(",")[0]) > 0
        if arm == "the same":
            found.append(replace(found[-1], advice=advice, paid=paid))
        else:
            leads = arm != "none"
            found.append(Pair(re.split("[, ]", name)[0], advice, leads, "ambiguous" in arm, "links" in arm, paid))
    return found


def draw(seen: Sequence[Pair]) -> Rule:
    """The simplest line of those that are right for most."""
    return max(TRAIN, key=lambda rule: sum(rule(pair) == pair.paid for pair in seen))


def test_the_readme_says_how_often_the_line_is_right_for_what_it_was_not_drawn_on() -> None:
    table = pairs()
    assert len(table) == 12 and len({pair.corpus for pair in table}) == 7
    assert all(TRAIN[-1](pair) == pair.advice.startswith("train") for pair in table)
    fits = [TRAIN[-1](pair) == pair.paid for pair in table]
    by_pair = [draw([one for one in table if one is not pair])(pair) == pair.paid for pair in table]
    by_corpus = [draw([one for one in table if one.corpus != pair.corpus])(pair) == pair.paid for pair in table]
    never = [not pair.paid for pair in table]
    counts = [sum(right) for right in (fits, by_pair, by_corpus, never)]
    text = " ".join(README.split())
    said = re.search(
        r'right for (\d+) of 12 .*? for (\d+) of 12 pairs; .*? left out, for (\d+); "never" for (\d+)\.', text
    )
    assert said and [int(count) for count in said.groups()] == counts == [10, 9, 4, 6]
