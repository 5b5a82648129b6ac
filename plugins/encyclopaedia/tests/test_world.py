"""The fictional world: exact size, stable texts, a grammar that reads back what it writes, clean splits."""

from collections import Counter
from itertools import product

import pytest
from harr_encyclopaedia import grammar
from harr_encyclopaedia.relations import RELATIONS
from harr_encyclopaedia.world import World, make_world
from harr_people.grammar import sentences
from harr_people.people import People
from harr_people.programs import PROGRAMS, parse

from harr.errors import CorpusError
from harr.types import Passage

SIZE, HOPS = 2000, [2, 3, 4]


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(SIZE, seed=0)


@pytest.fixture(scope="module")
def passages(world: World) -> dict[str, Passage]:
    return {passage.id: passage for passage in world.passages()}


def test_a_world_has_as_many_passages_as_asked_for_and_follows_its_seed() -> None:
    for size in (200, 201, 999):
        passages = list(make_world(size, seed=3).passages())
        assert len(passages) == len({p.id for p in passages}) == len({p.text for p in passages}) == size
        assert all(15 <= len(passage.text.split()) <= 75 for passage in passages)
    first, again, other = (make_world(300, seed=seed) for seed in (1, 1, 2))
    assert list(first.passages()) == list(again.passages()) != list(other.passages())
    assert first.questions("train", 20, [2]) == again.questions("train", 20, [2])
    assert first.questions("train", 20, [2])[:10] == again.questions("train", 10, [2]), "more begin with the same ones"


def test_only_namesakes_share_a_name_and_they_are_distinguished(world: World) -> None:
    entities = [(kind, index) for kind, count in world.counts.items() for index in range(count)]
    titles = [world.title(entity) for entity in entities]
    assert len(set(titles)) == len(titles)
    names = Counter(grammar.split_title(title)[0] for title in titles)
    shared = [title for title in titles if names[grammar.split_title(title)[0]] > 1]
    assert 40 <= len(shared) <= 80
    assert all(grammar.split_title(title)[1] for title in shared)
    assert all(grammar.split_mention(world.mention(e)) == grammar.split_title(world.title(e)) for e in entities)


def test_every_fact_sentence_is_read_back_as_that_fact_only(world: World, passages: dict[str, Passage]) -> None:
    stated = 0
    for kind, count in world.counts.items():
        for index in range(count):
            rows = {world.starts[kind] + index} | ({world.second.item(index)} - {-1} if kind == "person" else set())
            found = Counter()
            for row in rows:
                passage = passages[f"w{row:07d}"]
                name = grammar.split_title(passage.title)[0]
                for sentence in sentences(passage.text):
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
    sentence = "The poet Clara Gray manages Marsh & Lowell."
    assert grammar.read(RELATIONS["director"], "Marsh & Lowell", sentence) == "the poet Clara Gray"
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
    for last, pick in product(RELATIONS.values(), range(6)):
        for start in starts[last.domain]:
            assert grammar.parse(grammar.ask(last, start, pick)) == grammar.Chain(start, (last,))
        for first in (relation for relation in RELATIONS.values() if relation.range == last.domain):
            for start, other in product(starts[first.domain], range(6)):
                chain = grammar.Chain(start, (first, last))
                assert grammar.parse(grammar.ask_chain(chain, (pick, other))) == chain
        for pronoun in ("she", "he") if last.domain == "person" else ("it",):
            vague = grammar.ask_vaguely(last, pronoun, pick)
            assert grammar.parse_vague(vague) == last and "{" not in vague


def test_questions_state_their_chain_and_hide_the_rest(world: World, passages: dict[str, Passage]) -> None:
    questions = world.questions("train", 400, HOPS) + world.questions("test", 200, HOPS)
    assert len({q.text for q in questions}) == len({q.id for q in questions}) == 600
    assert Counter(q.kind for q in questions[:400]) == {"2hop": 134, "3hop": 133, "4hop": 133}
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
        assert any(question.answers[0].removeprefix("the ") in s for s in sentences(last.text))


def test_splits_share_no_gold_and_validation_changes_no_test_question(world: World) -> None:
    divided = make_world(SIZE, seed=0, validation=True)
    for own, splits in ((world, ("train", "test")), (divided, ("train", "validation", "test"))):
        gold = [{pid for q in own.questions(split, 90, HOPS) for pid in q.gold_ids} for split in splits]
        assert all(gold) and sum(map(len, gold)) == len(set().union(*gold))
    assert divided.questions("test", 90, HOPS) == world.questions("test", 90, HOPS)
    assert list(divided.passages()) == list(world.passages())
    with pytest.raises(CorpusError, match=r"lower validation_questions there"):
        world.questions("validation", 1, HOPS)
    with pytest.raises(CorpusError, match=r"a world of 200 passages .* raise download.settings.passages or lower test"):
        make_world(200, seed=0).questions("test", 2000, HOPS)


def test_neither_world_asks_in_the_words_of_the_other(world: World) -> None:
    people = People(60, 8, seed=0).questions("train", 50, list(PROGRAMS))
    assert all(grammar.parse(question.text) is None for question in people)
    assert all(parse(question.text) is None for question in world.questions("test", 50, [1, 2, 3]))
