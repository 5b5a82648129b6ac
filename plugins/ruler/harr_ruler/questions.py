"""RULER's QA (arXiv 2404.06654): the gold paragraphs of a question among those of other questions."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harr_lengths.babi import Story
from harr_lengths.stories import HaystackParams, LongDocuments, stories_of

from harr.datasets.local import passage_of, read_question_file
from harr.errors import CorpusError
from harr.io.jsonl import read_rows
from harr.params.fields import NonEmpty, PathOrName, Positive
from harr.types import Passage, Question


class ParagraphsParams(HaystackParams):
    """Questions whose gold paragraphs are placed between those of other questions."""

    noise: PathOrName
    """JSON lines file with the paragraphs, ``{id, text, title?}``: the gold ones and those in between."""
    train: NonEmpty[PathOrName]
    """Files of training questions ``{id, question, answers, supporting}``, from which at most train_questions are drawn
    by the seed."""
    test: NonEmpty[PathOrName]
    """Files of test questions, from which at most test_questions are drawn by the seed."""
    sentences: Positive = 100
    """Length of a document in paragraphs; questions with more gold ones are left out."""


def paragraphs(params: ParagraphsParams) -> LongDocuments:
    """Return questions in documents of any number of paragraphs."""
    return LongDocuments(
        params,
        "qa",
        made=lambda count: (),
        noise=lambda sentences: other_paragraphs(params),
        listed={split: partial(qa_stories, params, split) for split in ("train", "test")},
    )


def qa_stories(params: ParagraphsParams, split: str) -> Iterator[Story]:
    """Yield the questions of a split, each with its gold paragraphs as facts, in an order drawn by the seed.

    Raises:
        CorpusError: a question has no gold, or gold that is not among the paragraphs.
    """
    known = {passage.id: passage.content for passage in _paragraphs(params)}
    for question in _questions(params, split):
        unknown = [name for name in question.gold_ids if name not in known]
        if unknown or not question.gold_ids:
            missing = f"supporting {unknown[0]!r} is not in {params.noise}" if unknown else "no supporting paragraphs"
            raise CorpusError(f"question {question.id!r}: {missing}; RULER's QA hides the gold paragraphs of each")
        order = random.Random(f"{params.seed}/{question.id}").sample(question.gold_ids, len(question.gold_ids))
        facts = tuple(known[name] for name in order)
        yield Story(question.text, question.answers, facts, tuple(map(order.index, question.gold_ids)))


def other_paragraphs(params: ParagraphsParams) -> list[str]:
    """Return the paragraphs that are gold for no question, in an order drawn by the seed."""
    gold = {name for split in ("train", "test") for question in _questions(params, split) for name in question.gold_ids}
    others = [passage.content for passage in _paragraphs(params) if passage.id not in gold]
    random.Random(f"{params.seed}/paragraphs").shuffle(others)
    return others


def _paragraphs(params: ParagraphsParams) -> Iterator[Passage]:
    return map(passage_of, read_rows(Path(params.noise)))


def _questions(params: ParagraphsParams, split: str) -> Iterator[Question]:
    for path in getattr(params, split):
        yield from read_question_file(Path(path))


DATASET = stories_of(paragraphs, ParagraphsParams)
