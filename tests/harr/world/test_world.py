"""The fictional world: exact size, stable texts, a grammar that reads back what it writes, clean splits."""

import time
from collections import Counter

import numpy as np
import pytest

from harr.errors import CorpusError
from harr.types import Passage
from harr.world import grammar
from harr.world.names import NEAR_SURNAMES, draw_names
from harr.world.relations import RELATIONS
from harr.world.world import World, make_world

SIZE = 2000


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(SIZE, seed=0)


@pytest.fixture(scope="module")
def passages(world: World) -> dict[str, Passage]:
    return {passage.id: passage for passage in world.passages()}


@pytest.mark.parametrize("size", [200, 201, 999])
def test_exact_number_of_passages_with_distinct_ids_and_texts(size: int) -> None:
    passages = list(make_world(size, seed=3).passages())
    assert len(passages) == len({p.id for p in passages}) == len({p.text for p in passages}) == size


def test_the_seed_decides_everything() -> None:
    first, again, other = (make_world(300, seed=seed) for seed in (1, 1, 2))
    assert list(first.passages()) == list(again.passages())
    assert first.questions("train", 20, [2]) == again.questions("train", 20, [2])
    assert list(first.passages()) != list(other.passages())


def test_more_questions_begin_with_the_same_ones(world: World) -> None:
    assert world.questions("test", 60, [2, 3, 4])[:30] == world.questions("test", 30, [2, 3, 4])


def test_passages_are_short_paragraphs(passages: dict[str, Passage]) -> None:
    words = [len(p.text.split()) for p in passages.values()]
    assert min(words) >= 15
    assert max(words) <= 75
    assert 30 <= sum(words) / len(words) <= 50


def test_only_namesakes_share_a_name_and_they_are_told_apart(world: World) -> None:
    entities = [(kind, index) for kind, count in world.counts.items() for index in range(count)]
    titles = [world.title(entity) for entity in entities]
    assert len(set(titles)) == len(titles)
    names = Counter(grammar.split_title(title)[0] for title in titles)
    shared = [title for title in titles if names[grammar.split_title(title)[0]] > 1]
    assert 40 <= len(shared) <= 80
    assert all(grammar.split_title(title)[1] for title in shared)
    assert all(grammar.split_mention(world.mention(e)) == grammar.split_title(world.title(e)) for e in entities)


def test_near_names_differ_by_spelling() -> None:
    usual = {near: name for name, near in NEAR_SURNAMES.items()}
    names = draw_names("person", 400, np.random.default_rng(0), near=0.05, same=0.0)
    everyone = {names[row] for row in range(400)}
    near = [name.rsplit(" ", 1) for name in everyone if name.rsplit(" ", 1)[1] in usual]
    assert len(everyone) == 400
    assert len(near) == 20
    assert all(f"{given} {usual[surname]}" in everyone for given, surname in near)


def test_every_fact_sentence_is_read_back_as_that_fact_only(world: World, passages: dict[str, Passage]) -> None:
    stated = 0
    for kind, count in world.counts.items():
        for index in range(count):
            rows = {world.starts[kind] + index} | ({world.second.item(index)} - {-1} if kind == "person" else set())
            found = Counter()
            for row in rows:
                passage = passages[f"w{row:07d}"]
                name = grammar.split_title(passage.title)[0]
                for sentence in grammar.sentences(passage.text):
                    for relation in RELATIONS.values():
                        value = grammar.read(relation, name, sentence)
                        if value is not None:
                            found[(relation.name, value, row)] += 1
            expected = {
                (r.name, world._object(r, index), world._row(r, index)): 1
                for r in RELATIONS.values()
                if r.domain == kind and world.links[r.name].item(index) >= 0
            }
            assert found == expected
            stated += len(expected)
    assert stated > 2.5 * len(passages)


def test_a_sentence_about_somebody_else_is_not_read() -> None:
    mother = RELATIONS["mother"]
    assert grammar.read(mother, "Ada Brown", "Ada Browne's mother was Clara Gray.") is None
    assert grammar.read(mother, "Ada Brown", "Ada Brown's mother was the poet Clara Gray.") == "the poet Clara Gray"
    director = RELATIONS["director"]
    assert (
        grammar.read(director, "Marsh & Lowell", "The poet Clara Gray manages Marsh & Lowell.") == "the poet Clara Gray"
    )


def test_years_and_towns_of_birth_are_not_confused() -> None:
    assert grammar.read(RELATIONS["birthplace"], "Ada Brown", "She was born in 1898.") is None
    assert grammar.read(RELATIONS["birth_year"], "Ada Brown", "She was born in Ashford.") is None
    assert grammar.read(RELATIONS["birth_year"], "Ada Brown", "She was born in 1898.") == "1898"


def test_every_wording_of_every_relation_is_parsed_back() -> None:
    starts = {
        "person": ("Ada B. Brown", "the chemist Ada Brown", "James Hughes"),
        "firm": ("Marsh & Lowell", "Halden Tools"),
        "town": ("Upper Ashford on Wye",),
        "work": ("the novel The Silent Harbour", "The Quiet Mayor of the North"),
        "school": ("Ada Brown Grammar School",),
    }
    for last in RELATIONS.values():
        for start in starts[last.domain]:
            for pick in range(6):
                assert grammar.parse(grammar.ask(last, start, pick)) == grammar.Chain(start, (last,))
        inner = [r for r in RELATIONS.values() if r.range == last.domain]
        for first in inner:
            for start in starts[first.domain]:
                for picks in ((a, b) for a in range(6) for b in range(6)):
                    chain = grammar.Chain(start, (first, last))
                    assert grammar.parse(grammar.ask_chain(chain, picks)) == chain


def test_a_vague_question_means_one_relation_and_names_nobody() -> None:
    for relation in RELATIONS.values():
        for pronoun in ("she", "he") if relation.domain == "person" else ("it",):
            for pick in range(6):
                question = grammar.ask_vaguely(relation, pronoun, pick)
                assert grammar.parse_vague(question) == relation
                assert "{" not in question


def test_questions_state_their_chain_and_hide_the_rest(world: World, passages: dict[str, Passage]) -> None:
    questions = world.questions("train", 800, [2, 3, 4]) + world.questions("test", 400, [2, 3, 4])
    assert len({q.text for q in questions}) == len({q.id for q in questions}) == 1200
    assert Counter(q.kind for q in questions[:800]) == {"2hop": 267, "3hop": 267, "4hop": 266}
    for question in questions:
        chain = grammar.parse(question.text)
        assert chain is not None
        assert len(set(chain.relations)) == len(chain.relations) == len(question.gold_ids) == int(question.kind[0])
        titles = [passages[gold].title for gold in question.gold_ids]
        assert grammar.split_title(titles[0]) == grammar.split_mention(chain.start)
        assert len(set(titles)) == len(titles)
        hidden = [grammar.split_title(title)[0] for title in titles[1:]]
        assert not any(name in question.text for name in (*hidden, *question.answers))
        last = passages[question.gold_ids[-1]]
        assert any(question.answers[0].removeprefix("the ") in s for s in grammar.sentences(last.text))


def test_no_passage_is_gold_in_both_splits(world: World) -> None:
    train = {gold for q in world.questions("train", 800, [2, 3, 4]) for gold in q.gold_ids}
    test = {gold for q in world.questions("test", 400, [2, 3, 4]) for gold in q.gold_ids}
    assert train
    assert test
    assert not train & test


def test_validation_has_entities_of_its_own_and_changes_no_test_question(world: World) -> None:
    divided, hops = make_world(SIZE, seed=0, validation=True), [2, 3, 4]
    gold = {
        split: {pid for q in divided.questions(split, 90, hops) for pid in q.gold_ids}
        for split in ("train", "validation", "test")
    }
    assert all(gold.values()) and sum(map(len, gold.values())) == len(set().union(*gold.values()))
    assert divided.questions("test", 90, hops) == world.questions("test", 90, hops)
    assert list(divided.passages()) == list(world.passages())
    with pytest.raises(CorpusError, match=r"lower download\.validation_questions"):
        world.questions("validation", 1, hops)


def test_too_small_a_world_says_what_to_change() -> None:
    with pytest.raises(CorpusError, match=r"a world of 200 passages .* raise download.passages or lower download.test"):
        make_world(200, seed=0).questions("test", 2000, [2, 3, 4])


def test_passages_come_by_the_thousand() -> None:
    began = time.process_time()
    count = sum(1 for _ in make_world(40_000, seed=0).passages())
    assert count / (time.process_time() - began) > 2_000
