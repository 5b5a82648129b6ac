"""Texts that teach a small language model to use a search engine, made from fictional worlds.

From easy to hard. *Recitation*: passages, then their sentences again; the facts in them are learnt. *Practice*:
passages, then thoughts about their facts; what each fact says is learnt. *Traces*: the pipeline ``search_r1`` or
``r_search`` played by a scripted teacher; the model's own turns are learnt. Every world is used for a few questions
only, so nothing in it is worth memorising.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

from harr_people.grammar import mention, sentences

from harr.generator.demonstrations import Piece
from harr.rag.pipelines.r_search import r_search
from harr.rag.pipelines.replies import Framed
from harr.rag.pipelines.search_r1 import documents, information, search_r1
from harr.rag.rollout import play
from harr.types import Passage, Pipeline, Question, Retrieval, Retriever, Search
from harr_encyclopaedia import grammar, scripted
from harr_encyclopaedia.relations import RELATIONS, SOURCES
from harr_encyclopaedia.world import make_world

PASSAGES_PER_WORLD, QUESTIONS_PER_WORLD = 400, 24
ALIKE = 0.8
"""Share of one kind among the passages that a search shows besides the gold, and among those read together."""
FIRST = 0.8
"""Share of searches whose gold passage, if found, comes first, as in a search engine's ranking."""
MISSING = 0.05
"""Share of searches that miss their gold passage: the teacher says that it does not know."""
FIRST_WORLD = 1_000_000
"""Smallest seed of worlds for training; other worlds have smaller seeds and are never trained on."""
PASSAGES = 3
"""Number of passages that a search shows in the traces of a warm start."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A small world: its passages by id, its questions, and ids of passages by words of their title.

    ``alike``: by id, the passages of the same kind, which state the same things about others.
    """

    passages: dict[str, Passage]
    questions: tuple[Question, ...]
    by_word: dict[str, tuple[str, ...]]
    alike: dict[str, tuple[str, ...]]


def open_world(number: int, hops: tuple[int, ...]) -> Reader:
    """Return world ``number`` of those for training.

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
    places, ids = [0, *world.starts.values(), sum(world.counts.values()), len(passages)], tuple(passages)
    kinds = [ids[start:end] for start, end in pairwise(places)]
    alike = {name: kind for kind in kinds for name in kind}
    return Reader(passages, tuple(world.questions("train", QUESTIONS_PER_WORLD, hops)), by_word, alike)


def recitation(reader: Reader, rng: random.Random, documents: int, plays: str = "search_r1") -> list[Piece]:
    """Return passages, then each of their sentences that ends in a fact, in another order.

    >>> pieces = recitation(open_world(0, hops=(1,)), random.Random(0), documents=1)
    >>> [learnt for _, learnt in pieces[:3]]
    [False, False, True]
    """
    passages = _some(reader, rng, documents)
    facts = [(p.title, sentence, value) for p in passages for _, sentence, value in _facts(p)]
    rng.shuffle(facts)
    pieces: list[Piece] = [(_passages_text(passages, plays), False)]
    for title, sentence, value in facts:
        if sentence.endswith(f" {value}."):
            pieces += [(f"\n(Title: {title}) {sentence.removesuffix(f' {value}.')}", False), (f" {value}.", True)]
    return pieces


def practice(reader: Reader, rng: random.Random, documents: int, plays: str = "search_r1") -> list[Piece]:
    """Return passages, then every fact in them as a thought or, for ``leret``, as a query tells it.

    >>> pieces = practice(open_world(0, hops=(1,)), random.Random(0), documents=1)
    >>> [learnt for _, learnt in pieces[:3]]
    [False, False, True]
    """
    passages = _some(reader, rng, documents)
    facts = [(phrase, value) for passage in passages for phrase, _, value in _facts(passage)]
    rng.shuffle(facts)
    pieces: list[Piece] = [(_passages_text(passages, plays), False)]
    begin, end = ("\nQuery:", ",") if plays == "leret" else ("<think>", " </think>")
    for phrase, value in facts:
        pieces += [(f"{begin} {phrase} is", False), (f" {value}{end}", True)]
    return pieces


def game_of(plays: str, searches: int, template: Framed = "bare") -> Pipeline:
    """Return the pipeline ``search_r1`` or ``r_search`` with this ``template`` and number of ``searches``."""
    if plays == "r_search":
        return partial(r_search, tools=tuple(dict.fromkeys(SOURCES.values())), template=template)
    return partial(search_r1, max_searches=searches, template=template)


def trace(question: Question, retriever: Retriever, plays: str = "search_r1", template: Framed = "bare") -> list[Piece]:
    """Return a whole episode of ``search_r1`` or ``r_search`` with this ``template``, played by the teacher.

    >>> reader = open_world(0, hops=(1,))
    >>> pieces = trace(reader.questions[0], Oracle(reader, random.Random(0), k=2))
    >>> pieces[0][0].startswith("Question: "), pieces[-1][0].endswith("</answer>")
    (True, True)
    """
    says = scripted.plan if plays == "r_search" else scripted.turn
    teacher: Any = SimpleNamespace(complete=lambda requests: [says(request.prompt) for request in requests])
    [episode] = play([question], game_of(plays, len(question.gold_ids), template), retriever, teacher)
    pieces: list[Piece] = []
    length = 0
    for turn in episode.turns:
        pieces += [(turn.request.prompt[length:], False), (turn.completion, True)]
        length = len(turn.request.prompt) + len(turn.completion)
    return pieces


def make_traces(number: int, template: Framed, seed: int) -> list[list[Piece]]:
    """Make ``number`` traces of ``search_r1``, played by a scripted teacher in worlds used for no other questions.

    This is the function for ``generator.warmstart.demonstrations``.

    >>> [len(pieces) > 2 for pieces in make_traces(2, "bare", 0)]
    [True, True]
    """
    rng, made = random.Random(f"{seed}/demonstrations"), list[list[Piece]]()
    for world in count(seed * 100_000 + 100):
        reader = open_world(world, hops=(1, 2, 3))
        for question in reader.questions:
            if len(made) == number:
                return made
            made.append(trace(question, Oracle(reader, rng, PASSAGES, MISSING), template=template))
    raise AssertionError("there are always more worlds")


class Oracle:
    """A retriever that knows the gold: it finds ``k`` passages; a ``missing`` share of searches lacks the gold one."""

    def __init__(self, reader: Reader, rng: random.Random, k: int, missing: float = 0.0) -> None:
        self._reader, self._rng, self._k, self._missing = reader, rng, k, missing

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return what a good search engine might: the gold passage, and others that share a word of its title."""
        return [Retrieval(self._find(s.question.gold_ids[len(s.hops) :], s.exclude_ids)) for s in searches]

    def _find(self, to_come: Sequence[str], known: frozenset[str]) -> tuple[Passage, ...]:
        passages, rng = self._reader.passages, self._rng
        if not to_come:  # a model that keeps searching after the last hop
            return tuple(_some(self._reader, rng, self._k))
        gold = to_come[0]
        words = grammar.split_title(passages[gold].title)[0].split()
        near = list(dict.fromkeys(name for word in words for name in self._reader.by_word[word]))
        near = [name for name in near if name != gold and name not in known]
        rng.shuffle(near)
        ids = near[: rng.randint(0, self._k)]
        ids = (ids if rng.random() < self._missing else [gold, *ids])[: self._k]
        ids += _more(self._reader, rng, gold, (gold, *ids), self._k - len(ids))
        rng.shuffle(ids)
        if rng.random() < FIRST:
            ids.sort(key=lambda name: name != gold)
        return tuple(passages[name] for name in ids)


def _passages_text(passages: Sequence[Passage], plays: str) -> str:
    """Return passages in the block of the pipeline; ``leret`` has none."""
    if plays == "leret":
        return "\n".join(documents(passages))
    block = information(passages)[0]
    return block.replace("information>", "result>") if plays == "r_search" else block


def _some(reader: Reader, rng: random.Random, count: int) -> list[Passage]:
    first = rng.choice(sorted(reader.passages))
    return [reader.passages[name] for name in (first, *_more(reader, rng, first, (first,), count - 1))]


def _more(reader: Reader, rng: random.Random, name: str, known: Sequence[str], count: int) -> list[str]:
    """Return further passages, most of the kind of ``name``, so that they state the same things about others."""
    found: list[str] = []
    while len(found) < count:
        among = reader.alike[name] if rng.random() < ALIKE else tuple(reader.passages)
        other = rng.choice(among)
        found += [other] * (other not in known and other not in found)
    return found


def _facts(passage: Passage) -> Iterator[tuple[str, str, str]]:
    """Yield every fact of a passage: its phrase ("the mother of Ada Brown"), its sentence and its value."""
    name, qualifier = grammar.split_title(passage.title)
    for relation in RELATIONS.values():
        for sentence in sentences(passage.text):
            value = grammar.read(relation, name, sentence)
            if value:
                yield grammar.phrase(relation, mention(name, qualifier)), sentence, value
