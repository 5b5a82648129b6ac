"""A fictional encyclopaedia of any size, and multi-hop questions about it with their gold passages.

People, firms, towns, works and schools with English names are linked at random by the relations of ``relations.py``.
Everything follows from the number of passages and the seed. The links are a few integer arrays and texts are written on
demand, so a million passages need some hundred megabytes and well under a minute.

Distractors: some entities share a name ("Ada Brown (chemist)", "Ada Brown (painter)"), some differ by a letter (Brown,
Browne), and every fact names an entity that has its own passage.
"""

import random
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from harr_people.grammar import gender, mention
from harr_people.names import FEMALE, FIRM, PERSON, PROFESSIONS, TOWN, Index, Names, draw_names

from harr.errors import CorpusError
from harr.types import Passage, Question
from harr_encyclopaedia.fillers import INTROS, REMARKS
from harr_encyclopaedia.grammar import WORK_KINDS, Chain, ask_chain, state, title
from harr_encyclopaedia.names import SCHOOL, WORK
from harr_encyclopaedia.relations import RELATIONS, SOURCES, Relation

KINDS = {"person": PERSON, "firm": FIRM, "town": TOWN, "work": WORK, "school": SCHOOL}
SHARES = {"person": 0.45, "firm": 0.17, "town": 0.14, "work": 0.17, "school": 0.07}
NEAR, SAME = 0.05, 0.04
CAREER = ("employer", "school")
_BY_DOMAIN = {kind: tuple(r for r in RELATIONS.values() if r.domain == kind) for kind in SHARES}
_TEST_PERCENT, _VALIDATION_PERCENT = 40, 20
_TRIES = 1000
_Entity = tuple[str, int]


class World:
    """A fictional encyclopaedia as drawn by :func:`make_world`. ``links[relation][i]`` is the object's number, a year,
    or -1: not stated."""

    def __init__(self, passages: int, seed: int, *, validation: bool = False) -> None:
        rng = np.random.default_rng([seed, passages])
        seconds = passages // 5
        entities = passages - seconds
        counts = {kind: int(share * entities) for kind, share in SHARES.items()}
        counts["person"] += entities - sum(counts.values())
        self.size, self.seed, self.counts, self.validation = passages, seed, counts, validation
        self.names = {kind: _draw(kind, n, rng) for kind, n in counts.items()}
        self.qualifiers = {
            "person": _qualifiers(rng, self.names["person"].twin, len(PROFESSIONS)),
            "work": _qualifiers(rng, self.names["work"].twin, len(WORK_KINDS)),
        }
        self.links = _links(rng, self.names, self.qualifiers["work"])
        self.starts = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist(), strict=False))
        self.second = np.full(counts["person"], -1, dtype=np.int64)
        self._authors = np.sort(rng.permutation(counts["person"])[:seconds])
        self.second[self._authors] = entities + np.arange(seconds)
        _forget(rng, self.links, self.second)
        self._wordings = rng.integers(0, 2**62, size=passages)

    def passages(self, *, sources: bool = False) -> Iterator[Passage]:
        """Yield all passages in row order: one per entity, then the second passages of some people.

        ``sources``: each names its source, which follows from the kind of its entity.
        """
        for kind, n in self.counts.items():
            for index in range(n):
                yield self._passage(kind, index, self.starts[kind] + index, SOURCES[kind] if sources else "")
        for index in self._authors.tolist():
            yield self._passage("person", index, self.second.item(index), SOURCES["person"] if sources else "")

    def questions(self, split: str, count: int, hops: Sequence[int]) -> list[Question]:
        """Return ``count`` questions of ``split`` (train, validation or test), taking the hop numbers in turn.

        Entities are divided by the hash of their title, and all passages that a question needs are about entities of
        its own split, so no passage is gold in two splits. A chain uses no relation and no entity twice, and the text
        names only its start.

        Raises:
            CorpusError: the world is too small for so many distinct questions.
        """
        rng = random.Random(f"{self.seed}/{split}")
        known: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
        questions: list[Question] = []
        for number in range(count):
            length = hops[number % len(hops)]
            for _ in range(_TRIES):
                question = self._question(rng, f"{split}-{number:06d}", length, split)
                if question and (question.gold_ids, question.answers) not in known:
                    break
            else:
                raise CorpusError(
                    f"a world of {self.size} passages has too few {length}-hop {split} questions: found {number} of "
                    f"{count} in all; raise download.settings.passages or lower {split}_questions there"
                )
            known.add((question.gold_ids, question.answers))
            questions.append(question)
        return questions

    def mention(self, entity: _Entity) -> str:
        """Return how texts name an entity: with a qualifier if the name is shared."""
        return mention(self.names[entity[0]][entity[1]], self._qualifier(entity))

    def title(self, entity: _Entity) -> str:
        """Return the heading of an entity's passages."""
        return title(self.names[entity[0]][entity[1]], self._qualifier(entity))

    def _qualifier(self, entity: _Entity) -> str:
        kind, index = entity
        return self._occupation(kind, index) if self.names[kind].twin.item(index) >= 0 else ""

    def _occupation(self, kind: str, index: int) -> str:
        words = {"person": PROFESSIONS, "work": WORK_KINDS}.get(kind)
        return words[self.qualifiers[kind].item(index)] if words else ""

    def _object(self, relation: Relation, index: int) -> str:
        target = self.links[relation.name].item(index)
        return str(target) if relation.range == "year" else self.mention((relation.range, target))

    def _row(self, relation: Relation, index: int) -> int:
        """Return the row of the passage that states a fact."""
        second = self.second.item(index) if relation.name in CAREER else -1
        return second if second >= 0 else self.starts[relation.domain] + index

    def _passage(self, kind: str, index: int, row: int, source: str) -> Passage:
        entity, wording = (kind, index), self._wordings.item(row)
        name, occupation = self.names[kind][index], self._occupation(kind, index)
        pronoun = gender(name) if kind == "person" else "it"
        is_second = kind == "person" and row == self.second.item(index)
        wording, pick = divmod(wording, 64)
        intros = INTROS["career" if is_second else occupation if kind == "work" else kind]
        article = "an" if occupation[:1] in tuple("aeo") else "a"
        parts = [intros[pick % len(intros)].format(s=name, article=article, occupation=occupation)]
        for relation in _BY_DOMAIN[kind]:
            if self.links[relation.name].item(index) < 0 or self._row(relation, index) != row:
                continue
            wording, pick = divmod(wording, 64)
            parts.append(state(relation, pick // 4, name, self._object(relation, index), pronoun, named=pick % 4 == 0))
        remarks = REMARKS[kind]
        parts.append(remarks[wording % len(remarks)])
        return Passage(f"w{row:07d}", " ".join(parts), self.title(entity), source)

    def _question(self, rng: random.Random, name: str, hops: int, split: str) -> Question | None:
        """Return one random question, or None if the walk reaches a dead end."""
        walked = self._walk(rng, hops, split)
        if walked is None:
            return None
        steps, relations = walked
        last, subject = relations[-1], steps[-1][1]
        answer = self._object(last, subject)
        plain = answer if last.range == "year" else self.names[last.range][self.links[last.name].item(subject)]
        text = ask_chain(Chain(self.mention(steps[0]), relations), [rng.randrange(60) for _ in relations])
        names = [self.names[kind][index] for kind, index in steps[1:]]
        if any(hidden in text for hidden in (*names, plain)):
            return None
        gold = tuple(f"w{self._row(r, index):07d}" for r, (_, index) in zip(relations, steps, strict=True))
        answers = tuple(dict.fromkeys((answer, plain)))
        return Question(name, text, answers=answers, gold_ids=gold, kind=f"{hops}hop")

    def _walk(self, rng: random.Random, hops: int, split: str) -> tuple[list[_Entity], tuple[Relation, ...]] | None:
        """Return the entities to look up, in order, and the relation to follow from each; None at a dead end."""
        kind = rng.choice(tuple(self.counts))
        entity = (kind, rng.randrange(self.counts[kind]))
        if self._split(entity) != split:
            return None
        steps: list[_Entity] = []
        relations: list[Relation] = []
        seen = {entity}
        for hop in range(hops):
            options = []
            for relation in _BY_DOMAIN[entity[0]]:
                target = (relation.range, self.links[relation.name].item(entity[1]))
                if target[1] < 0 or target in seen or relation in relations:
                    continue
                if hop == hops - 1 or (relation.range != "year" and self._split(target) == split):
                    options.append((relation, target))
            if not options:
                return None
            steps.append(entity)
            relation, entity = rng.choice(options)
            relations.append(relation)
            seen.add(entity)
        return steps, tuple(relations)

    def _split(self, entity: _Entity) -> str:
        """Return the split of an entity, by its title alone; test is the same with and without validation."""
        place = zlib.crc32(self.title(entity).encode()) % 100
        if place < _TEST_PERCENT:
            return "test"
        return "validation" if self.validation and place < _TEST_PERCENT + _VALIDATION_PERCENT else "train"


def make_world(passages: int, seed: int, *, validation: bool = False) -> World:
    """Return a fictional encyclopaedia of exactly ``passages`` passages.

    ``validation``: of every 100 entities, 20 of the 60 for training questions go to validation questions.

    >>> world = make_world(200, seed=0)
    >>> sum(1 for _ in world.passages())
    200
    >>> question = world.questions("test", 1, [2])[0]
    >>> len(question.gold_ids), question.kind
    (2, '2hop')
    """
    return World(passages, seed, validation=validation)


def _draw(kind: str, count: int, rng: np.random.Generator) -> Names:
    return draw_names(KINDS[kind], count, rng, near=NEAR, same=SAME if kind in ("person", "work") else 0.0)


def _qualifiers(rng: np.random.Generator, twin: Index, words: int) -> Index:
    """Return a word number for every entity; namesakes get different ones."""
    numbers = rng.integers(0, words, size=len(twin))
    rows = np.flatnonzero(twin >= 0)
    later = rows[twin[rows] < rows]
    numbers[later] = (numbers[twin[later]] + rng.integers(1, words, size=len(later))) % words
    return numbers


def _links(rng: np.random.Generator, names: dict[str, Names], work_kinds: Index) -> dict[str, Index]:
    """Return every relation's objects. People are numbered from the youngest, so parents have higher numbers."""
    counts = {kind: len(names[kind]) for kind in names}
    people = counts["person"]
    years = 1985 - 140 * np.arange(people) // people
    female = names["person"].columns[0] < len(FEMALE)
    links = {
        r.name: rng.integers(0, counts[r.range], size=counts[r.domain]) for r in RELATIONS.values() if r.range != "year"
    }
    links["birth_year"] = years
    for parent, rows, most in (
        ("mother", np.flatnonzero(female), 40),
        ("father", np.flatnonzero(~female), 50),
    ):
        older = np.arange(people) + people * rng.integers(20, most, size=people) // 140
        place = np.searchsorted(rows, older)
        links[parent] = np.where(place < len(rows), rows[np.minimum(place, len(rows) - 1)], -1)
    links["founder"] = rng.integers(people * 3 // 10, people, size=counts["firm"])
    for present in ("mayor", "director", "head"):
        links[present] = rng.integers(0, max(1, people * 2 // 5), size=len(links[present]))
    links["opening_year"] = years[links["founder"]] + rng.integers(22, 50, size=counts["firm"])
    towns = rng.permutation(counts["town"])
    pairs = counts["town"] // 2
    links["twin"] = np.full(counts["town"], -1)
    links["twin"][towns[:pairs]], links["twin"][towns[pairs : 2 * pairs]] = towns[pairs : 2 * pairs], towns[:pairs]
    written = work_kinds < 3
    for relation in ("author", "publisher", "setting"):
        links[relation][~written] = -1
    for relation in ("composer", "premiere"):
        links[relation][written] = -1
    return links


def _forget(rng: np.random.Generator, links: dict[str, Index], second: Index) -> None:
    """Leave out some facts, so that a passage states two to four; drop links to the entity itself."""
    for kind, kept in (("person", 4), ("firm", 3)):
        names = [r.name for r in _BY_DOMAIN[kind]]
        rank = rng.random((len(links[names[0]]), len(names))).argsort(axis=1)
        for column, name in enumerate(names):
            dropped = rank[:, column] >= kept
            if kind == "person":
                dropped &= second < 0
            links[name][dropped] = -1
    for relation in RELATIONS.values():
        if relation.range == relation.domain:
            own = links[relation.name] == np.arange(len(links[relation.name]))
            links[relation.name][own] = -1
