"""A fictional world that needs a policy: people with several look-alike passages each, and questions about them.

A person has one passage per relation (``harr_people/biography.py``), so the relation asked for decides the passage;
every name occurs in many passages of other people. Questions have one form (``harr_people/programs.py``) and are looked
up in several steps, most of which do not name their person (``harr_people/references.py``): the question and the
history show who is meant.
"""

import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from harr.errors import CorpusError
from harr.types import Passage, Question
from harr_people.biography import FACTS, REMARKS, state
from harr_people.grammar import mention, split_mention
from harr_people.names import FIRM, PERSON, PROFESSIONS, TOWN, Names, draw_names
from harr_people.programs import PROGRAMS, Node, steps, write

SHARES = {"train": 0.5, "validation": 0.15, "test": 0.35}
"""Shares of the people; nobody is linked to people of another split."""
RELATIONS = 8
"""Number of relations of a person, in pairs with the same wording; each has a passage."""
_PLACES = 60
"""Number of towns, and of firms; they have no passages of their own."""
_TRIES = 1000


class People:
    """A world of ``size`` people with ``relations`` passages each, drawn from ``seed``.

    ``links[i][noun]`` is the number of the object: a person, a town or a firm.
    """

    def __init__(self, size: int, relations: int, seed: int) -> None:
        rng = np.random.default_rng([seed, size, relations])
        self.seed, self.facts = seed, FACTS[:relations]
        names = draw_names(PERSON, size, rng)
        epithets = rng.integers(0, len(PROFESSIONS), size=size).tolist()
        self.mentions = [mention(names[i], PROFESSIONS[epithets[i]]) for i in range(size)]
        self.places: Mapping[str, Names] = {
            "town": draw_names(TOWN, _PLACES, rng),
            "firm": draw_names(FIRM, _PLACES, rng),
        }
        order = rng.permutation(size).tolist()
        ends = [0, *(round(size * end) for end in np.cumsum(list(SHARES.values())).tolist())]
        self.splits = {name: sorted(order[ends[n] : ends[n + 1]]) for n, name in enumerate(SHARES)}
        self.links: dict[int, dict[str, int]] = {}
        self.remarks: dict[int, tuple[int, ...]] = {}
        for people in self.splits.values():
            for person in people:
                self._link(person, [other for other in people if other != person], rng)

    def _link(self, person: int, others: list[int], rng: np.random.Generator) -> None:
        """Draw the objects of a person's relations, all different, and the person mentioned last in each passage."""
        ranges = [fact.range for fact in self.facts]
        friends = rng.permutation(others)[: ranges.count("person")].tolist()
        drawn = {kind: rng.permutation(_PLACES).tolist() for kind in self.places} | {"person": list(friends)}
        self.links[person] = {fact.noun: drawn[fact.range].pop() for fact in self.facts}
        nouns = [fact.noun if fact.range == "person" else "" for fact in self.facts]
        self.remarks[person] = tuple(
            int(rng.choice([friend for friend in friends if friend != self.links[person].get(noun)])) for noun in nouns
        )

    def name(self, person: int) -> str:
        """Return a person's name."""
        return split_mention(self.mentions[person])[0]

    def passages(self) -> Iterator[Passage]:
        """Yield all passages, person by person, one per relation."""
        for person in range(len(self.mentions)):
            draw = random.Random(f"wording {self.seed} {person}")
            for number, fact in enumerate(self.facts):
                statement = state(fact, draw.randrange(2), self.name(person), self.object(person, fact.noun))
                remark = draw.choice(REMARKS).format(m=self.name(self.remarks[person][number]))
                yield Passage(self.passage_id(person, number), f"{statement} {remark}", self.name(person))

    def object(self, person: int, noun: str) -> str:
        """Return the object of a relation, in words."""
        target, kind = self.links[person][noun], {fact.noun: fact.range for fact in self.facts}[noun]
        return self.name(target) if kind == "person" else self.places[kind][target]

    def passage_id(self, person: int, number: int) -> str:
        """Return the id of the passage that states relation ``number`` of a person."""
        return f"p{person * len(self.facts) + number:06d}"

    def questions(self, split: str, count: int, programs: Sequence[str] = tuple(PROGRAMS)) -> list[Question]:
        """Return ``count`` questions about people of ``split``, each of a program drawn from ``programs``.

        Raises:
            CorpusError: the world is too small for so many distinct questions.
        """
        draw = random.Random(f"questions {self.seed} {split}")
        by_text: dict[str, Question] = {}
        for number in range(count):
            kind = draw.choices(programs)[0]
            for _ in range(_TRIES):
                question = self._question(draw, f"{split}-{number:06d}", kind, split)
                if question and question.text not in by_text:
                    by_text[question.text] = question
                    break
            else:
                raise CorpusError(
                    f"a world of {len(self.mentions)} people has too few {split} questions of program {kind}: found "
                    f"{number} of {count} in all; raise download.settings.people or lower {split}_questions there"
                )
        return list(by_text.values())

    def _question(self, draw: random.Random, name: str, program: str, split: str) -> Question | None:
        """Return one random question; None if two of its people or of its answers are the same."""
        people = dict(zip("xy", draw.sample(self.splits[split], 2), strict=True))
        to_people = [fact.noun for fact in self.facts if fact.range == "person"]
        to_places = [fact.noun for fact in self.facts if fact.range != "person"]
        nouns = dict(zip("PQ", draw.sample(to_people, 2), strict=True))
        nouns |= dict(zip("AB", draw.sample(to_places, 2), strict=True))
        shapes = draw.sample(PROGRAMS[program], len(PROGRAMS[program]))
        starts = {self.mentions[people[shape[0]]]: people[shape[0]] for shape in shapes}
        if len({split_mention(start)[1] for start in starts}) < len(starts):
            return None
        leaves = tuple((self.mentions[people[shape[0]]], *(nouns[letter] for letter in shape[1:])) for shape in shapes)
        text = write(leaves)
        order = steps(text)
        subjects = {step[:-1]: self._follow(starts[step[0]], step[1:-1]) for step in order}
        answers = [self.object(subjects[leaf[:-1]], leaf[-1]) for leaf in leaves]
        if len(set(subjects.values())) < len(subjects) or len(set(answers)) < len(answers):
            return None
        gold = tuple(self._gold(subjects[step[:-1]], step) for step in order)
        return Question(name, text, answers=(join(answers),), gold_ids=gold, kind=program)

    def _follow(self, person: int, nouns: Node) -> int:
        for noun in nouns:
            person = self.links[person][noun]
        return person

    def _gold(self, person: int, step: Node) -> str:
        return self.passage_id(person, [fact.noun for fact in self.facts].index(step[-1]))


def join(answers: list[str]) -> str:
    """Return the answers to all that a question asks, in its order, as one.

    >>> join(["Ashford", "Halden Tools"])
    'Ashford; Halden Tools'
    """
    return "; ".join(answers)
