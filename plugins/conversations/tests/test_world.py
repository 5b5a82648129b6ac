"""The made conversations: each turn can be understood from what was said, and its gold says the answer."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from harr_conversations.world import DATASET, WorldParams, make_conversations
from harr_people.biography import FACT
from harr_people.people import RELATIONS, People
from harr_people.references import understand

WORLD = People(200, RELATIONS, 0)
CONVERSATIONS = list(make_conversations(WORLD, "test", 200, 6))


def understood(turns: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Whom the last turn is about, and the relation that it asks for, by the words of all turns alone."""
    people, about, spoken, noun = list[str](), "", "", ""
    for turn in turns:
        if elliptic := re.fullmatch(r"And the (.+)\?", turn["question"]):
            noun, person = elliptic[1], about
        else:
            fact, person = understand(turn["question"]) or (None, "")
            assert fact
            noun = fact.noun
            if person:
                people = [person]
            elif "the other one's" in turn["question"]:
                (person,) = {*people} - {about}
                assert len(people) == 2
            else:
                person = spoken
        about = spoken = person
        if FACT[noun].range == "person" and turn["supporting"]:
            spoken = turn["answer"]
            people += [spoken] * (spoken not in people)
    return about, noun


def test_every_turn_is_understood_from_what_was_said_before() -> None:
    for one in CONVERSATIONS:
        for number, turn in enumerate(one["turns"], 1):
            fact, name = understand(turn["rewrite"]) or (None, "")
            assert fact and understood(one["turns"][:number]) == (name, fact.noun), one["turns"][:number]


def test_gold_says_the_answer_and_nobody_is_of_two_splits() -> None:
    params = WorldParams(validation_questions=20, train_conversations=40, test_conversations=40)
    source = DATASET.load(params)
    passages = {passage.id: passage for passage in source.passages}
    gold = {
        split: {pid for question in asked or () for pid in question.gold_ids}
        for split, asked in (("train", source.train), ("validation", source.validation), ("test", source.test))
    }
    assert not (gold["train"] & gold["test"] or gold["train"] & gold["validation"] or gold["test"] & gold["validation"])
    for one in CONVERSATIONS:
        for turn in one["turns"]:
            for pid in turn["supporting"]:
                assert turn["answer"] in passages[pid].text and passages[pid].title in turn["rewrite"]


def test_turns_are_of_all_kinds_and_seeded() -> None:
    turns = [turn for one in CONVERSATIONS for turn in one["turns"]]
    kinds = Counter(turn["kind"] for turn in turns)
    assert kinds.keys() == {"first", "pronoun", "ellipsis", "other", "topic_switch"} and min(kinds.values()) > 100
    unknown = [turn for turn in turns if not turn["supporting"]]
    assert len(unknown) / (len(turns) - 200) == pytest.approx(0.1, abs=0.03)
    assert list(make_conversations(WORLD, "test", 200, 6)) == CONVERSATIONS
    assert list(make_conversations(People(200, RELATIONS, 1), "test", 200, 6)) != CONVERSATIONS
