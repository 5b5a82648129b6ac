"""What passages of the people's world state: ten relations of a person in look-alike pairs, and their wordings.

Both relations of a pair have nearly the same wording, so only the relation separates a passage from its neighbour.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harr_people.grammar import sentences


@dataclass(frozen=True, slots=True)
class Fact:
    """A relation of a person: its ``noun``, its object's type (``person``, ``town`` or ``firm``), and its wordings.

    ``{s}`` is the person and ``{o}`` the object.
    """

    noun: str
    range: str
    wordings: tuple[str, ...]


def _pair(range_: str, first: str, second: str, *wordings: str) -> tuple[Fact, Fact]:
    """Return two relations with the same wording: ``{n}`` in a wording is the noun."""
    facts = [Fact(noun, range_, tuple(w.replace("{n}", noun) for w in wordings)) for noun in (first, second)]
    return facts[0], facts[1]


FACTS = (
    *_pair("person", "teacher", "guardian", "{s} had a patient {n}, {o}.", "As a child {s} had {o} for a {n}."),
    *_pair(
        "town",
        "summer home",
        "winter home",
        "{s} kept a {n} in {o}.",
        "For many years {o} was the {n} of {s}.",
    ),
    *_pair("person", "rival", "partner", "{s} had a lifelong {n}, {o}.", "{s} shared many a stage with {o}, a {n}."),
    *_pair(
        "firm",
        "first employer",
        "last employer",
        "{s} had the firm of {o} as {n}.",
        "The {n} of {s} was the firm of {o}.",
    ),
    *_pair("person", "cousin", "neighbour", "{s} always trusted a {n}, {o}.", "{s} wrote every week to {o}, a {n}."),
)
"""The relations; a world with fewer of them takes the first ones."""
FACT = {fact.noun: fact for fact in FACTS}

REMARKS = (
    "Letters to {m} tell of it.",
    "A diary of {m} tells of it.",
    "It is told in a memoir by {m}.",
    "{m} wrote about it years later.",
)
"""Last sentences of passages: each mentions another person, {m}, and states no fact."""


def state(fact: Fact, pick: int, subject: str, object_: str) -> str:
    """Return the sentence that states a fact, in wording number ``pick``.

    >>> state(FACT["rival"], 0, "Ada Brown", "Clara Gray")
    'Ada Brown had a lifelong rival, Clara Gray.'
    """
    return fact.wordings[pick % len(fact.wordings)].format(s=subject, o=object_)


def read(fact: Fact, text: str) -> str | None:
    """Return the object of a passage's first sentence if that states the relation, else None.

    >>> read(FACT["rival"], "Ada Brown had a lifelong rival, Clara Gray. A diary of Eva Price tells of it.")
    'Clara Gray'
    >>> read(FACT["partner"], "Ada Brown had a lifelong rival, Clara Gray.") is None
    True
    """
    matches = (pattern.fullmatch(sentences(text)[0]) for pattern in _PATTERNS[fact.noun])
    return next((match["o"] for match in matches if match), None)


def _patterns(wordings: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    escaped = (re.escape(wording) for wording in wordings)
    return tuple(
        re.compile(wording.replace(r"\{s\}", "(?P<s>[A-Z].*)").replace(r"\{o\}", "(?P<o>[A-Z].*)"))
        for wording in escaped
    )


_PATTERNS = {fact.noun: _patterns(fact.wordings) for fact in FACTS}
