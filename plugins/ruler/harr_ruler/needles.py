"""RULER's needles (arXiv 2404.06654): sentences that give a name a number or UUID, and a question about some.

Names are an adjective and a noun, or UUIDs; numbers have seven digits. No name or value occurs twice in a story, and no
name of a story occurs in a haystack of needles.
"""

import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from harr_lengths.answers import set_f1, verdict
from harr_lengths.babi import Story
from harr_lengths.noise import noise_sentences
from harr_lengths.stories import Exam, HaystackParams, LongDocuments, stories_of

from harr.errors import CorpusError
from harr.params.fields import PathOrName

KINDS = {"single": (1, 1, 1), "multi_key": (4, 1, 1), "multi_value": (1, 4, 1), "multi_query": (4, 1, 4)}
"""Numbers of names in a story, of values per name, and of names asked for."""
ADJECTIVES = (
    "amber ancient arctic bashful bitter bold brave bright brisk broad bumpy calm careful cheerful chilly clever "
    "cloudy copper cosmic crimson crooked curious daring dim distant dusty eager early elegant emerald faint faithful "
    "fancy fearless fierce flat foggy fragile fresh frosty gentle gigantic glossy golden graceful grand grateful green "
    "hasty heavy hidden hollow humble icy idle ivory jolly keen lazy lively lonely loud lucky marble mellow mighty "
    "misty modest muddy narrow neat nimble noble odd orange pale patient plain polite proud puzzled quick quiet rapid "
    "rare restless rough rusty secret shallow sharp shiny silent silver sleepy smooth snowy solid spare velvet wild"
).split()
NOUNS = (
    "anchor acorn anvil apron badger banjo barley barrel basket beacon bell blanket bottle bridge bucket button cabin "
    "cactus camel candle canyon castle cedar cello chimney clover comet compass coral cradle cricket crystal curtain "
    "daisy desert dolphin dragon eagle engine falcon feather fiddle fossil fountain garlic glacier goblet hammer "
    "harbor hedgehog helmet island jacket jungle kettle ladder lagoon lantern lemon lighthouse lizard magnet mango "
    "meadow mirror mitten monsoon orchard otter oyster paddle parrot pebble pepper pillow planet prairie pumpkin "
    "puzzle quartz rabbit river rocket saddle salmon sparrow spider thimble tiger trumpet tunnel turtle valley violin "
    "volcano walnut windmill zebra"
).split()
_VALUE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b\d{7}\b")


class NeedlesParams(HaystackParams):
    """Needles in a haystack: values stated between the sentences of a long text."""

    kind: Literal["single", "multi_key", "multi_value", "multi_query"]
    """Task of RULER: one needle, distractors with other keys, several values of a key, or several keys asked for."""
    keys: Literal["words", "uuids"] = "words"
    """What is asked about: an adjective and a noun, or a UUID."""
    values: Literal["numbers", "uuids"] = "numbers"
    """The value of a key: a number of seven digits, or a UUID."""
    noise: PathOrName
    """Haystack: a text file (RULER's essays), a JSON lines file with ``text``, repeated (RULER's five sentences over
    and over), needles (of keys that nobody asks for), or a function ``package.module:name`` that returns texts."""


def needles(params: NeedlesParams) -> LongDocuments:
    """Return needles in documents of any length."""

    def noise(sentences: int) -> list[str]:
        if params.noise == "needles":
            return distractors(2 * max(sentences, 1), params.seed, params.keys, params.values)
        return noise_sentences(params.noise, sentences, params.seed)

    return LongDocuments(
        params,
        params.kind,
        made=lambda count: make_needles(params.kind, count, params.seed, params.keys, params.values),
        noise=noise,
        listed={},
        exam=Exam(Path(__file__).with_name("needles.txt").read_text(encoding="utf-8"), judge_values),
    )


def judge_values(said: str, gold: str) -> dict[str, Any]:
    """Judge a reply by all values in it, in any order.

    >>> judge_values("The values are 1234567, 7654321.", "7654321, 1234567")
    {'answer': '1234567, 7654321', 'answer_em': 1.0, 'answer_f1': 1.0}
    """
    values = _VALUE.findall(said)
    found, wanted = set(values), set(_VALUE.findall(gold))
    return verdict(", ".join(values), found == wanted, set_f1(found, wanted))


DATASET = stories_of(needles, NeedlesParams, apart=True)


def make_needles(kind: str, count: int, seed: int, keys: str = "words", values: str = "numbers") -> Iterator[Story]:
    """Make ``count`` stories of a kind: single, multi_key (4 names, 1 asked for), multi_value (1 name, 4 values) or
    multi_query (4 names, all asked for).

    ``keys``: words or uuids; ``values``: numbers or uuids. The answer is one string with all values asked for; gold are
    their facts, in that order.

    >>> story = next(make_needles("single", 1, seed=0))
    >>> story.facts[0].startswith("One of the special magic numbers for "), story.gold
    (True, (0,))

    Raises:
        CorpusError: an unknown kind.
    """
    if kind not in KINDS:
        raise CorpusError(f"needle kind {kind!r} is unknown; expected one of {', '.join(KINDS)}")
    names, each, asked = KINDS[kind]
    rng = random.Random(f"{seed}/{kind}/{keys}/{values}")
    words = _names()[0]
    for _ in range(count):
        own = rng.sample(words, names) if keys == "words" else [_uuid(rng) for _ in range(names)]
        statements = [(own[i // each], value) for i, value in enumerate(_values(values, names * each, rng))]
        rng.shuffle(statements)
        wanted = own[:asked]
        gold = [place for key in wanted for place, (name, _) in enumerate(statements) if name == key]
        yield Story(
            question=_ask(wanted, each, values),
            answers=(", ".join(statements[place][1] for place in gold),),
            facts=tuple(_needle(name, value, values) for name, value in statements),
            gold=tuple(gold),
        )


def distractors(count: int, seed: int, keys: str = "words", values: str = "numbers") -> list[str]:
    """Return a haystack of ``count`` needles that no story asks for.

    Raises:
        CorpusError: there are not that many names.
    """
    rng = random.Random(f"{seed}/haystack/{keys}/{values}")
    words = _names()[1]
    if keys == "words" and count > len(words):
        raise CorpusError(
            f"a haystack of {count:,} needles needs as many names, found {len(words):,}; set keys to uuids, "
            "or lower sentences (both splits have a haystack of their own)"
        )
    own = rng.sample(words, count) if keys == "words" else [_uuid(rng) for _ in range(count)]
    return [_needle(name, value, values) for name, value in zip(own, _values(values, count, rng), strict=True)]


@cache
def _names() -> tuple[list[str], list[str]]:
    """Return all names made of words in two halves: for stories and for haystacks."""
    pairs = [f"{adjective}-{noun}" for adjective in ADJECTIVES for noun in NOUNS]
    random.Random(0).shuffle(pairs)
    return pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]


def _values(values: str, count: int, rng: random.Random) -> list[str]:
    if values == "uuids":
        return [_uuid(rng) for _ in range(count)]
    return [str(value) for value in rng.sample(range(1_000_000, 10_000_000), count)]


def _uuid(rng: random.Random) -> str:
    return str(UUID(int=rng.getrandbits(128), version=4))


def _needle(name: str, value: str, values: str) -> str:
    return f"One of the special magic {values} for {name} is: {value}."


def _ask(keys: list[str], each: int, values: str) -> str:
    if each == len(keys) == 1:
        return f"What is the special magic {values[:-1]} for {keys[0]} mentioned in the provided text?"
    listed = keys[0] if len(keys) == 1 else f"{', '.join(keys[:-1])}, and {keys[-1]}"
    return f"What are all the special magic {values} for {listed} mentioned in the provided text?"
