"""The people's world: look-alike passages, one form of question, splits without a link, golds in order of the steps."""

import re
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from harr_people import grammar
from harr_people.biography import FACTS, read
from harr_people.people import People
from harr_people.programs import PROGRAMS, parse, steps, write

from harr.errors import CorpusError
from harr.types import Passage

SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def world() -> People:
    return People(200, 8, seed=0)


@pytest.fixture(scope="module")
def passages(world: People) -> dict[str, Passage]:
    return {passage.id: passage for passage in world.passages()}


def named_in(passage: Passage, names: set[str]) -> set[str]:
    words = re.sub("[,.]|'s", "", passage.text).split()
    return {f"{one} {two}" for one, two in pairwise(words)} & names


def test_every_person_has_a_passage_per_relation_and_the_seed_decides_everything() -> None:
    for people, relations in ((60, 4), (80, 10)):
        passages = list(People(people, relations, seed=3).passages())
        assert len(passages) == len({p.id for p in passages}) == len({p.text for p in passages}) == people * relations
        assert set(Counter(p.title for p in passages).values()) == {relations}
    first, again, other = (People(60, 4, seed) for seed in (1, 1, 2))
    assert list(first.passages()) == list(again.passages()) != list(other.passages())
    assert first.questions("test", 10) == again.questions("test", 10)
    with pytest.raises(CorpusError, match=r"60 people has too few validation questions of program same: .* raise"):
        first.questions("validation", 2000, ["same"])


def test_a_passage_states_one_relation_and_mentions_somebody_of_whom_it_states_none(
    passages: dict[str, Passage],
) -> None:
    names = {passage.title for passage in passages.values()}
    for passage in passages.values():
        relations = [(fact, value) for fact in FACTS if (value := read(fact, passage.text))]
        assert len(relations) == 1
        fact, value = relations[0]
        named = named_in(passage, names)
        assert passage.title in named and len(named) == (3 if fact.range == "person" else 2)
        assert (value in names) == (fact.range == "person")
    for one, two in zip(FACTS[::2], FACTS[1::2], strict=True):  # the two of a pair are said alike
        assert one.range == two.range
        assert [w.replace(one.noun, "") for w in one.wordings] == [w.replace(two.noun, "") for w in two.wordings]


def test_nobody_is_linked_to_somebody_of_another_split(world: People, passages: dict[str, Passage]) -> None:
    split_of = {world.name(person): name for name, people in world.splits.items() for person in people}
    assert len(split_of) == 200
    assert Counter(split_of.values()) == {"train": 100, "validation": 30, "test": 70}
    about = Counter()
    for passage in passages.values():
        named = named_in(passage, {*split_of})
        assert {split_of[name] for name in named} == {split_of[passage.title]}
        about.update(named)
    assert min(about.values()) >= 8 and sum(about.values()) > 16 * len(about), "a name stands in passages of others"
    golds = [{gold for q in world.questions(split, 300) for gold in q.gold_ids} for split in SPLITS]
    assert all(golds) and sum(map(len, golds)) == len(set.union(*golds))


def test_programs_come_in_their_shares_and_texts_only_once(world: People) -> None:
    questions = world.questions("train", 500, ["chain", "chain", "chain", "two"])
    assert len({q.text for q in questions}) == len({q.id for q in questions}) == 500
    kinds = Counter(q.kind for q in questions)
    assert set(kinds) == {"chain", "two"} and 0.7 < kinds["chain"] / 500 < 0.8


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_question_is_its_program_and_states_no_answer(
    world: People, passages: dict[str, Passage], program: str
) -> None:
    expected = {shape[1:].translate(str.maketrans("PQAB", "ppaa")) for shape in PROGRAMS[program]}
    for question in world.questions("test", 60, [program]):
        leaves = parse(question.text) or ()
        assert write(leaves) == question.text
        assert {"p" * (len(leaf) - 2) + "a" for leaf in leaves} == expected
        order = steps(question.text)
        assert len(order) == len(question.gold_ids) == len(set(question.gold_ids))
        known = {leaf[:1]: grammar.split_mention(leaf[0])[0] for leaf in leaves}
        for step, gold in zip(order, question.gold_ids, strict=True):
            assert passages[gold].title == known[step[:-1]]
            value = read(next(fact for fact in FACTS if fact.noun == step[-1]), passages[gold].text)
            assert value and value not in question.text
            known[step] = value
        assert question.answers == ("; ".join(known[leaf] for leaf in leaves),)


@pytest.mark.parametrize("program", [name for name in PROGRAMS if len(PROGRAMS[name]) == 2])
def test_the_form_does_not_show_the_order_of_steps(world: People, program: str) -> None:
    orders: dict[tuple[int, ...], Counter[tuple[int, ...]]] = defaultdict(Counter)
    for question in world.questions("train", 300, [program]):
        leaves = parse(question.text) or ()
        order = steps(question.text)
        form = tuple(len(leaf) for leaf in leaves)
        orders[form][tuple(order.index(leaf) for leaf in leaves)] += 1
    for counts in orders.values():
        assert len(counts) >= 2 and max(counts.values()) < 0.75 * sum(counts.values())
