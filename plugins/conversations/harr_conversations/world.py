"""Conversations about the people's world (``harr_people/people.py``), most of whose turns name nobody.

| kind | turn | refers to |
|---|---|---|
| first | Who was Ada Brown's rival? | the person named |
| topic_switch | Who was Eva Price's rival? | the person named; from here on, nobody mentioned before |
| pronoun | Which town was her summer home? | the last person mentioned: the answer, if it is a person |
| ellipsis | And the winter home? | the person the turn before asked about |
| other | Which town was the other one's winter home? | of two people, the one the turn before did not ask about |
"""

import random
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from harr_people.biography import FACTS
from harr_people.dataset import describe_origin
from harr_people.grammar import PRONOUNS, gender
from harr_people.people import RELATIONS, People
from harr_people.references import ask
from pydantic import Field

from harr.datasets import Dataset
from harr.datasets.source import Source
from harr.io.jsonl import Row
from harr.params.download import QuestionsParams
from harr.params.fields import Positive, Seed
from harr.types import Question
from harr_conversations.data import questions_of

RATES = {"pronoun": 0.3, "ellipsis": 0.25, "other": 0.6, "topic_switch": 0.2}
"""Rates of the kinds of later turns, relative to those that can be understood."""
UNKNOWN = 0.1
"""Share of the later turns that no passage answers: they have no gold, and occur only in the history."""


class WorldParams(QuestionsParams):
    """Settings of generated conversations (``download.settings``)."""

    people: int = Field(200, ge=60, le=20_000)
    """Number of people; nobody is mentioned in two splits."""
    train_conversations: Positive = 300
    """Number of conversations for training."""
    test_conversations: Positive = 100
    """Number of conversations for testing."""
    turns: int = Field(5, ge=1, le=8)
    """Number of turns per conversation."""
    seed: Seed = 0
    """Random seed of people and conversations."""


def load(params: WorldParams) -> Source:
    """Make people and conversations about them."""
    world = People(params.people, RELATIONS, params.seed)

    def questions(split: str, count: int) -> Iterator[Question]:
        rows = make_conversations(world, split, count, params.turns)
        return chain.from_iterable(questions_of(Row(row, row["id"])) for row in rows)

    validating = params.validation_questions
    return Source(
        passages=world.passages(),
        train=questions("train", params.train_conversations),
        test=questions("test", params.test_conversations),
        validation=questions("validation", validating) if validating else None,
    )


DATASET = Dataset(load, describe_origin, apart=True, settings=WorldParams)


def make_conversations(world: People, split: str, count: int, turns: int) -> Iterator[dict[str, Any]]:
    """Yield ``count`` conversations about the people of ``split``, each as a row of a file of conversations.

    >>> first = next(make_conversations(People(60, RELATIONS, 0), "test", 1, 5))
    >>> first["id"], len(first["turns"]), first["turns"][0]["kind"]
    ('test-00000', 5, 'first')
    """
    draw = random.Random(f"conversations {world.seed} {split}")
    for number in range(count):
        yield {"id": f"{split}-{number:05d}", "turns": list(_turns(world, world.splits[split], turns, draw))}


def _turns(world: People, people: Sequence[int], count: int, draw: random.Random) -> Iterator[dict[str, Any]]:
    """Yield the turns of a conversation; no fact of a person is asked for twice."""
    asked: set[tuple[int, str]] = set()
    topic: list[int] = []
    about = last = -1
    for number in range(count):
        new = draw.choice([person for person in people if person not in topic])
        meant = {"topic_switch": new, "pronoun": last, "ellipsis": about}
        if len(topic) == 2:
            meant["other"] = topic[topic[0] == about]
        kind = draw.choices(list(meant), [RATES[kind] for kind in meant])[0] if number else "first"
        person = meant.get(kind, new)
        fresh = [fact for fact in FACTS if (person, fact.noun) not in asked]
        untold = [fact for fact in fresh if fact not in world.facts]
        known = not (number and untold and draw.random() < UNKNOWN)
        fact = draw.choice([fact for fact in fresh if fact in world.facts] if known else untold)
        asked.add((person, fact.noun))
        name, pick = world.name(person), draw.randrange(2)
        whose = {"pronoun": PRONOUNS[gender(name)]["their"], "other": "the other one's"}.get(kind, f"{name}'s")
        place = world.facts.index(fact) if known else -1
        topic = [person] if kind in ("first", "topic_switch") else topic
        about = last = person
        if known and fact.range == "person":
            last = world.links[person][fact.noun]
            topic += [last] * (last not in topic)
        yield {
            "question": f"And the {fact.noun}?" if kind == "ellipsis" else ask(fact, whose, pick),
            "answer": world.object(person, fact.noun) if known else "Nobody has told me that.",
            "supporting": [world.passage_id(person, place)] if known else [],
            "kind": kind,
            "rewrite": ask(fact, f"{name}'s", pick),
        }
