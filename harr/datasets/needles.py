"""Needles after RULER (arXiv 2404.06654): sentences that give a number to a name, and a question about some of them.

Names are an adjective and a noun, numbers have seven digits; no name and no number comes twice in a story.
"""

import random
from collections.abc import Iterator

from harr.datasets.babi import Story
from harr.errors import CorpusError

KINDS = {"single": (1, 1, 1), "multi_key": (4, 1, 1), "multi_value": (1, 4, 1), "multi_query": (4, 1, 4)}
"""How many names a story has, how many numbers each has, and how many names are asked for."""
ADJECTIVES = (
    "amber ancient brave bright calm clever copper crimson distant eager gentle golden hollow humble icy jolly "
    "lonely lucky marble mellow misty noble orange pale quiet rapid rusty secret silent silver sleepy velvet"
).split()
NOUNS = (
    "anchor badger barrel beacon bridge candle canyon castle comet compass falcon fiddle harbor hedgehog island "
    "kettle ladder lantern lighthouse meadow mirror orchard otter parrot pebble puzzle river saddle thimble "
    "trumpet violin windmill"
).split()


def make_needles(kind: str, count: int, seed: int) -> Iterator[Story]:
    """Make ``count`` stories of a kind: single, multi_key (4 names, 1 asked for), multi_value (1 name, 4
    numbers) or multi_query (4 names, all asked for).

    The answer is one string with all numbers that are asked for; gold are their facts, in that order.

    >>> story = next(make_needles("single", 1, seed=0))
    >>> story.question, story.facts, story.gold
    ('What is the magic number of the noble comet?', ('A magic number of the noble comet is 1749472.',), (0,))

    Raises:
        CorpusError: an unknown kind.
    """
    if kind not in KINDS:
        raise CorpusError(f"needle kind {kind!r} is unknown; expected one of {', '.join(KINDS)}")
    names, numbers, asked = KINDS[kind]
    rng = random.Random(f"{seed}/{kind}")
    for _ in range(count):
        pairs = rng.sample(range(len(ADJECTIVES) * len(NOUNS)), names)
        keys = [f"{ADJECTIVES[pair // len(NOUNS)]} {NOUNS[pair % len(NOUNS)]}" for pair in pairs]
        values = [str(value) for value in rng.sample(range(1_000_000, 10_000_000), names * numbers)]
        statements = [(keys[i // numbers], value) for i, value in enumerate(values)]
        rng.shuffle(statements)
        wanted = keys[:asked]
        gold = [place for key in wanted for place, (name, _) in enumerate(statements) if name == key]
        yield Story(
            question=_ask(wanted, numbers),
            answers=(", ".join(statements[place][1] for place in gold),),
            facts=tuple(f"A magic number of the {name} is {value}." for name, value in statements),
            gold=tuple(gold),
        )


def _ask(keys: list[str], numbers: int) -> str:
    if numbers > 1:
        return f"What are all magic numbers of the {keys[0]}?"
    if len(keys) > 1:
        return f"What are the magic numbers of the {', the '.join(keys[:-1])} and the {keys[-1]}?"
    return f"What is the magic number of the {keys[0]}?"
