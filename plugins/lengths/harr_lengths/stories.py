"""Long documents: the facts of a story at random places between the sentences of an unrelated text.

A passage is a sentence. Noise has ids such as ``n0000012`` and is searchable. Every fact of every story is its own
passage, e.g. ``qa2-train-00017-03``, even if its words occur elsewhere: the same sentence twice is two facts.
``candidate_ids`` is the document in reading order.
"""

import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from harr.corpus.sample import draw_rows
from harr.datasets import Dataset
from harr.datasets.source import Source
from harr.datasets.splits import hold_out
from harr.errors import CorpusError
from harr.params.download import QuestionsParams
from harr.params.fields import PathOrName, Positive, Seed
from harr.types import Passage, Question
from harr_lengths.babi import Story

_TRIES = 50


class HaystackParams(QuestionsParams):
    """Stories hidden between the sentences of a long text."""

    noise: PathOrName
    """Long text: a text file, a JSON lines file with ``text``, repeated (RULER's five sentences over and over), or a
    function ``package.module:name`` that returns texts, e.g. ``harr_encyclopaedia.dataset:noise``."""
    sentences: Positive = 100
    """Length of a document in sentences; longer stories are left out."""
    train_noise: int = Field(0, ge=0)
    """Maximum number of noise sentences in training documents, each of which is encoded again during training; 0 means
    all."""
    train_questions: Positive = 800
    """Number of training stories, with one question each."""
    test_questions: Positive = 400
    """Number of test stories, with one question each."""
    seed: Seed = 0
    """Random seed for generating and placing stories."""


@dataclass(frozen=True, slots=True)
class Exam:
    """How a language model is asked a question about the picks, and judged.

    Args:
        prompt: messages, the system's and the user's, with ``---`` between, ``$passages`` and ``$question``.
        judge: ``judge(reply, gold)`` is ``answer``, ``answer_em`` and ``answer_f1``.
    """

    prompt: str
    judge: Callable[[str, str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class LongDocuments:
    """A data set of stories, each hidden in a document of any length.

    Args:
        params: section ``download``, or the settings of another package's data set.
        name: kind of its questions, the prefix of their ids.
        made: ``made(count)`` makes about ``count`` stories, in no order.
        noise: ``noise(sentences)`` is the text between the facts; generated noise is at least twice as long.
        listed: by split, the stories of files, of which some are drawn; a split without files is generated.
        exam: how a language model is asked (`harr lengths --answers`).
    """

    params: HaystackParams
    name: str
    made: Callable[[int], Iterable[Story]]
    noise: Callable[[int], list[str]]
    listed: Mapping[str, Callable[[], Iterable[Story]]]
    exam: Exam | None = None


def hide(story: Story, noise: Sequence[str], sentences: int, rng: random.Random) -> tuple[list[str], tuple[int, ...]]:
    """Make a document of exactly ``sentences`` sentences, and the positions of the story's gold in it.

    The noise is one run from a random start; the facts are in order at random places.

    >>> story = Story("Where is Mary?", ("office",), ("Mary moved to the office.", "John left the milk."), (0,))
    >>> document, gold = hide(story, ["It rained.", "It snowed.", "It thawed."], 4, random.Random(1))
    >>> len(document), [document[place] for place in gold]
    (4, ['Mary moved to the office.'])

    Raises:
        CorpusError: the story has more facts than the document has sentences, or the noise is too short.
    """
    needed = sentences - len(story.facts)
    if needed < 0:
        raise CorpusError(
            f"a story of {len(story.facts)} facts does not fit into {sentences} sentences; raise download.settings.sentences"
        )
    if needed > len(noise):
        raise CorpusError(
            f"a document of {sentences} sentences needs {needed} of noise, found {len(noise)}; "
            "name a longer text in download.settings.noise (each split takes one half of it), raise download.settings.train_noise, "
            "or lower download.settings.sentences"
        )
    start = rng.randrange(len(noise) - needed + 1)
    places = sorted(rng.sample(range(sentences), len(story.facts)))
    document: list[str] = []
    for number, (place, fact) in enumerate(zip(places, story.facts, strict=True)):
        document += noise[start + len(document) - number : start + place - number]
        document.append(fact)
    document += noise[start + len(document) - len(places) : start + needed]
    return document, tuple(places[fact] for fact in story.gold)


def documents(data: LongDocuments) -> Source:
    """Open stories in long documents.

    Noise and facts are passages; documents of training and validation use the first half of the noise, or its start.

    Raises:
        CorpusError: a file or the noise is missing or wrong, or too few stories fit into a document.
    """
    params, by_split = data.params, stories(data)
    noise = data.noise(params.sentences)
    ids = [f"n{row:07d}" for row in range(len(noise))]
    half = len(ids) // 2
    first = ids[: min(half, params.train_noise or half)]
    halves = {"train": first, "validation": first, "test": ids[half:]}

    def passages() -> Iterator[Passage]:
        yield from map(Passage, ids, noise)
        for split, split_stories in by_split.items():
            for number, story in enumerate(split_stories):
                yield from map(Passage, fact_ids(question_id(data, split, number), story), story.facts)

    def questions(split: str) -> Iterator[Question]:
        for number, story in enumerate(by_split[split]):
            yield question_of(data, question_id(data, split, number), story, halves[split], params.sentences)

    return Source(
        passages(),
        questions("train"),
        questions("test"),
        searchable=lambda passage: "-" not in passage.id,
        validation=questions("validation") if params.validation_questions else None,
    )


def stories(data: LongDocuments) -> dict[str, list[Story]]:
    """Return the stories of all splits, from official files or generated; none is in two. Those of validation are drawn
    from those of training."""

    params = data.params

    def of_split(split: str, count: int) -> list[Story]:
        if read_file := data.listed.get(split):
            return _draw(read_file(), split, count, params)
        return _take(_take_half(data.made(2 * _TRIES * count), split), split, count, params.sentences)

    test = of_split("test", params.test_questions)
    tested = {(story.question, story.facts) for story in test}
    train_stories = of_split("train", params.train_questions + params.validation_questions)
    train_stories = [story for story in train_stories if (story.question, story.facts) not in tested]
    train, validation = hold_out(train_stories, params.validation_questions, params.seed)
    validated = {(story.question, story.facts) for story in validation}
    train = [story for story in train if (story.question, story.facts) not in validated]
    return {"train": train, "validation": validation, "test": test}


def question_id(data: LongDocuments, split: str, number: int) -> str:
    """Return the id of a story's question."""
    return f"{data.name}-{split}-{number:05d}"


def question_of(data: LongDocuments, qid: str, story: Story, noise: Sequence[str], sentences: int) -> Question:
    """Return the question of a story in its document; ``noise`` are passage ids."""
    id_story = replace(story, facts=fact_ids(qid, story))
    document, gold = hide(id_story, noise, sentences, random.Random(f"{data.params.seed}/{qid}"))
    gold_ids = tuple(document[place] for place in gold)
    return Question(qid, story.question, story.answers, gold_ids, tuple(document), kind=data.name)


def _take_half(stories: Iterable[Story], split: str) -> Iterator[Story]:
    """Yield the stories of a split: a story with the same question is always in the same one."""
    for story in stories:
        key = "\n".join((story.question, *story.facts))
        if zlib.crc32(key.encode()) % 2 == (split == "test"):
            yield story


def _take(stories: Iterable[Story], split: str, count: int, sentences: int) -> list[Story]:
    """Return the first ``count`` stories that fit into a document; generated ones have no order."""
    fitting: list[Story] = []
    too_long = 0
    for story in stories:
        if len(fitting) == count:
            break
        if len(story.facts) <= sentences:
            fitting.append(story)
        else:
            too_long += 1
    _check_count(len(fitting), too_long, split, sentences, at_least=count)
    return fitting


def _draw(stories: Iterable[Story], split: str, count: int, params: HaystackParams) -> list[Story]:
    """Return at most ``count`` stories from files that fit into a document, drawn by the seed."""
    read = list(stories)
    fitting = [story for story in read if len(story.facts) <= params.sentences]
    _check_count(len(fitting), len(read) - len(fitting), split, params.sentences, at_least=1)
    return list(draw_rows(fitting, count, params.seed))


def _check_count(fitting: int, too_long: int, split: str, sentences: int, *, at_least: int) -> None:
    """Check that enough stories fit into a document.

    Raises:
        CorpusError: too few do; says how many.
    """
    if fitting < at_least:
        raise CorpusError(
            f"download: {fitting} of {fitting + too_long} {split} stories fit into {sentences} sentences, expected "
            f"{at_least} that fit; raise download.settings.sentences"
        )


def fact_ids(question: str, story: Story) -> tuple[str, ...]:
    """Return the ids of a story's facts; ``question`` is the id of its question."""
    return tuple(f"{question}-{place:02d}" for place in range(len(story.facts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stories(Dataset):
    """A data set of stories, which `harr lengths` plays in documents of any length.

    Args:
        long_documents: makes them from its settings.
    """

    long_documents: Callable[[Any], LongDocuments]


def stories_of(
    long_documents: Callable[[Any], LongDocuments], settings: type[HaystackParams], *, apart: bool = False
) -> Stories:
    """Return a data set of stories; ``apart``: no passage is gold in two splits."""
    return Stories(
        lambda params: documents(long_documents(params)),
        of_noise,
        apart=apart,
        settings=settings,
        long_documents=long_documents,
    )


def of_noise(params: Any) -> str:
    """Describe what documents of stories are made of."""
    between = "are five sentences again and again" if params.noise == "repeated" else f"is from {params.noise}"
    return f"documents of {params.sentences:,} sentences or paragraphs; what is told in between {between}"
