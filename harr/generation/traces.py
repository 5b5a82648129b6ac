"""Texts that teach a small language model to use a search engine, made from fictional worlds.

Two kinds. *Practice*: passages, then one-fact questions about them; only the answers are learnt. *Traces*: the
pipeline ``search_r1`` played by a scripted teacher; the model's own turns are learnt. Every world is read
for a few questions only, so that nothing in it is worth remembering.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from harr.corpus import grammar
from harr.corpus.relations import RELATIONS
from harr.corpus.world import make_world
from harr.generation import scripted
from harr.pipelines.search_r1 import information, search_r1
from harr.types import Generate, Passage, Question, Retrieval, Search

PASSAGES_PER_WORLD, QUESTIONS_PER_WORLD, PRACTICES_PER_WORLD = 400, 24, 24
FIRST_WORLD = 1_000_000
"""Worlds to learn from have seeds from here on; other worlds have smaller ones and were never read."""
MISSING = 0.12
"""Share of searches that do not find what they look for: the teacher says that it does not know."""
Piece = tuple[str, bool]
"""A part of a text; True where the model learns to write it."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A small world: its passages by id, its questions, and the ids of passages by words of their title."""

    passages: dict[str, Passage]
    questions: tuple[Question, ...]
    by_word: dict[str, tuple[str, ...]]


def open_world(number: int, hops: tuple[int, ...]) -> Reader:
    """World ``number`` of those to learn from.

    >>> len(open_world(0, hops=(1,)).questions)
    24
    """
    world = make_world(PASSAGES_PER_WORLD, FIRST_WORLD + number)
    passages = {passage.id: passage for passage in world.passages()}
    words: dict[str, list[str]] = {}
    for passage in passages.values():
        for word in grammar.split_title(passage.title)[0].split():
            words.setdefault(word, []).append(passage.id)
    by_word = {word: tuple(ids) for word, ids in words.items()}
    return Reader(passages, tuple(world.questions("train", QUESTIONS_PER_WORLD, hops)), by_word)


def practice(reader: Reader, rng: random.Random, documents: int) -> list[Piece]:
    """Passages, and every fact in them as a question.

    >>> pieces = practice(open_world(0, hops=(1,)), random.Random(0), documents=1)
    >>> [learnt for _, learnt in pieces[:3]]
    [False, False, True]
    """
    passages = [reader.passages[name] for name in rng.sample(sorted(reader.passages), documents)]
    asked = [fact for passage in passages for fact in _facts(passage)]
    rng.shuffle(asked)
    pieces: list[Piece] = [(information(passages)[0], False)]
    for query, value in asked:
        pieces += [(f"<search> {query} </search><think>", False), (f" {value} </think>", True)]
    return pieces


def trace(reader: Reader, question: Question, rng: random.Random, k: int) -> list[Piece]:
    """A whole episode of ``search_r1`` with ``k`` passages a search, played by the teacher.

    >>> reader = open_world(0, hops=(1,))
    >>> pieces = trace(reader, reader.questions[0], random.Random(0), k=2)
    >>> pieces[0][0].startswith("Question: "), pieces[-1][0].endswith("</answer>")
    (True, True)
    """
    game = search_r1(question, max_searches=len(question.gold_ids), template="bare")
    request = next(game)
    pieces: list[Piece] = []
    told = 0
    while isinstance(request, Generate):
        written = scripted.turn(request.prompt)
        pieces += [(request.prompt[told:], False), (written, True)]
        told = len(request.prompt) + len(written)
        try:
            request = game.send(written)
        except StopIteration:
            break
        if isinstance(request, Search):
            gold = question.gold_ids[len(request.hops)]
            request = game.send(Retrieval(_find(reader, gold, rng, k)))
    return pieces


def _find(reader: Reader, gold: str, rng: random.Random, k: int) -> tuple[Passage, ...]:
    """What a good search engine might bring: the gold passage and others that share a word of its title."""
    words = grammar.split_title(reader.passages[gold].title)[0].split()
    near = [name for word in words for name in reader.by_word[word] if name != gold]
    others = sorted(name for name in reader.passages if name not in near and name != gold)
    rng.shuffle(near)
    ids = list(dict.fromkeys(near))[: rng.randint(0, k)]
    ids = (ids if rng.random() < MISSING else [gold, *ids])[:k]
    ids += rng.sample(others, k - len(ids))
    rng.shuffle(ids)
    return tuple(reader.passages[name] for name in ids)


def _facts(passage: Passage) -> Iterator[tuple[str, str]]:
    """Everything a passage states, as pairs of a question and its answer."""
    name, qualifier = grammar.split_title(passage.title)
    for relation in RELATIONS.values():
        for sentence in grammar.sentences(passage.text):
            value = grammar.read(relation, name, sentence)
            if value:
                pick = len(sentence)  # any number will do
                yield grammar.ask(relation, grammar.mention(name, qualifier), pick), value
