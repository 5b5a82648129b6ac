"""Questions of the people's world: what they ask, as trees of steps, and the one form in which they say it.

A :data:`Node` is a person of the question, as named there, and relations to follow from them:
``("the painter Ada Brown", "rival", "summer home")``. A question is one or two nodes; its *steps* are the facts to look
up on the way to them. The wording does not give the order of the steps.
"""

import random
import re

from harr_people.biography import FACT
from harr_people.grammar import split_mention

Node = tuple[str, ...]

PROGRAMS = {
    "chain": ("xPQA",),
    "same": ("xPA", "xPB"),
    "line": ("xPA", "xPQB"),
    "twins": ("xPA", "xQB"),
    "two": ("xPA", "yQB"),
}
"""The shapes of questions: x and y are people in it, P and Q relations to people, A and B to a town or firm.

``line``: the summer home of x's rival, and the first employer of that rival's teacher.
"""


def write(leaves: tuple[Node, ...]) -> str:
    """Return the question that asks for ``leaves``.

    >>> write((("the painter Ada Brown", "rival", "summer home"), ("the poet Eva Price", "last employer")))
    'Name the summer home of the rival of the painter Ada Brown and the last employer of the poet Eva Price.'
    """
    phrases = (" of ".join([*(f"the {noun}" for noun in reversed(leaf[1:])), leaf[0]]) for leaf in leaves)
    return f"Name {' and '.join(phrases)}."


def parse(question: str) -> tuple[Node, ...] | None:
    """Return what a question asks for, in its order; None if it does not follow this grammar.

    >>> parse("Name the summer home of the rival of the painter Ada Brown.")
    (('the painter Ada Brown', 'rival', 'summer home'),)
    >>> parse("Where was Ada Brown born?") is None
    True
    """
    match = re.fullmatch(r"Name the (.+)\.", question)
    if not match:
        return None
    leaves = []
    for phrase in match[1].split(" and the "):
        *nouns, person = phrase.split(" of ")
        path = tuple(noun.removeprefix("the ") for noun in reversed(nouns))
        if not path or any(noun not in FACT for noun in path) or not split_mention(person)[1]:
            return None
        leaves.append((person, *path))
    return tuple(leaves)


def steps(question: str) -> tuple[Node, ...]:
    """Return the facts to look up, each after the one it depends on, otherwise in an order from the question's hash.

    >>> steps("Name the summer home of the rival of the painter Ada Brown.")
    (('the painter Ada Brown', 'rival'), ('the painter Ada Brown', 'rival', 'summer home'))
    """
    leaves = parse(question) or ()
    pending = list(dict.fromkeys(leaf[:end] for leaf in leaves for end in range(2, len(leaf) + 1)))
    draw, ordered = random.Random(f"order {question}"), []
    while pending:
        step = draw.choice([node for node in pending if node[:-1] not in pending])
        pending.remove(step)
        ordered.append(step)
    return tuple(ordered)
