"""How a planner of the people's world refers to the person of a sub-query, and how a reader understands it.

| kind | sub-query | refers to |
|---|---|---|
| name | Who was Ada Brown's rival? | anybody |
| pronoun | Who was her rival? | the last person mentioned |
| ellipsis | Who was the rival? | the last person mentioned |
| description | Who was the teacher's rival? | a person found as an answer |
| epithet | Who was the painter's rival? | a person in the question |
| other | Who was the other one's rival? | one of two, where the last sub-query was about the other |
"""

import random
import re
from collections.abc import Mapping, Sequence

from harr_people.biography import FACT, FACTS, Fact
from harr_people.grammar import PRONOUNS, gender, split_mention
from harr_people.programs import Node

RATES = {
    "name": 0.25,
    "pronoun": 0.25,
    "ellipsis": 0.15,
    "description": 0.35,
    "epithet": 0.15,
    "other": 0.05,
}
"""Rates of the kinds. They are guesses: we have not counted how often a language model names nobody."""
ASKS = {
    "person": ("Who was {} {}?", "What was the name of {} {}?"),
    "town": ("Which town was {} {}?", "What was the town of {} {}?"),
    "firm": ("Which firm was {} {}?", "What was the firm of {} {}?"),
}
_NOUNS = "|".join(fact.noun for fact in FACTS)
_SUB_QUERY = re.compile(rf"(?:Who was|Which \w+ was|What was the \w+ of) (.+?) ({_NOUNS})\?")


def ask(fact: Fact, whose: str, pick: int) -> str:
    """Return a sub-query for a fact, in wording number ``pick``; ``whose`` is a possessive.

    >>> ask(FACT["summer home"], "her", 0), ask(FACT["summer home"], "Ada Brown's", 1)
    ('Which town was her summer home?', "What was the town of Ada Brown's summer home?")
    """
    forms = ASKS[fact.range]
    return forms[pick % len(forms)].format(whose, fact.noun)


def understand(sub_query: str) -> tuple[Fact, str] | None:
    """Return the relation that a sub-query asks for and the person's name, "" if it names nobody; or None.

    >>> understand("Who was Ada Brown's rival?")[1], understand("Who was the teacher's rival?")[1]
    ('Ada Brown', '')
    >>> understand("Where was Ada Brown born?") is None
    True
    """
    match = _SUB_QUERY.fullmatch(sub_query)
    if not match:
        return None
    whose = match[1]
    has_name = whose.endswith("'s") and not whose.startswith("the ")
    return FACT[match[2]], whose.removesuffix("'s") if has_name else ""


def possessives(node: Node, done: Sequence[Node], names: Mapping[Node, str]) -> dict[str, str]:
    """Return by kind the possessives that can be understood as the person ``node`` after the steps ``done``.

    ``names`` are those of the people found so far and of those in the question.

    >>> x, rival = ("the painter Ada Brown",), ("the painter Ada Brown", "rival")
    >>> possessives(rival, [rival], {x: "Ada Brown", rival: "Clara Gray"})
    {'name': "Clara Gray's", 'description': "the rival's", 'pronoun': 'her', 'ellipsis': 'the'}
    """
    name = names[node]
    described = {"description": f"the {node[-1]}'s"} if node[1:] else {"epithet": f"the {split_mention(node[0])[1]}'s"}
    by_kind = {"name": f"{name}'s", **described}
    if done and node == (last := done[-1] if done[-1] in names else done[-1][:-1]):
        by_kind |= {"pronoun": PRONOUNS[gender(name)]["their"], "ellipsis": "the"}
    elif done and node != last and _are_a_pair(node, done[-1][:-1], names):
        by_kind["other"] = "the other one's"
    return by_kind


def _are_a_pair(one: Node, two: Node, names: Mapping[Node, str]) -> bool:
    """Return whether two people are the only ones of their sort: in the question, or found."""
    alike = [node for node in names if bool(node[1:]) == bool(one[1:])]
    return one != two and sorted(alike) == sorted((one, two))


def sub_query(
    question: str, step: Node, done: Sequence[Node], names: Mapping[Node, str], weights: Mapping[str, float]
) -> tuple[str, str]:
    """Return the sub-query for a step, and the same with the full name; kind and wording depend on the question's hash.

    ``weights``: how often each kind of reference is used, relative to the others that can be understood; without any,
    the name is used.
    """
    node, fact = step[:-1], FACT[step[-1]]
    whose = possessives(node, done, names)
    draw = random.Random(f"reference {question} {step}")
    kinds = [kind for kind in whose if weights.get(kind, 0) > 0] or ["name"]
    kind = draw.choices(kinds, [weights.get(kind, 1) for kind in kinds])[0]
    pick = draw.randrange(2)
    return ask(fact, whose[kind], pick), ask(fact, whose["name"], pick)
