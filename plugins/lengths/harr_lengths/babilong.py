"""Stories of bAbI in long documents (BABILong, arXiv 2406.10149), from official files or generated."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from pydantic import Field

from harr.params.fields import PathOrName
from harr_lengths.babi import Story, make_stories, read_stories
from harr_lengths.noise import noise_sentences
from harr_lengths.stories import HaystackParams, LongDocuments, stories_of


class BabiLongParams(HaystackParams):
    """Stories of bAbI hidden between the sentences of a long text (BABILong, arXiv 2406.10149)."""

    task: int = Field(ge=1, le=5)
    """Number of the bAbI task."""
    train: tuple[PathOrName, ...] = ()
    """Official training files, from which at most train_questions stories are drawn by the seed; if empty, stories are
    generated."""
    test: tuple[PathOrName, ...] = ()
    """Official test files, from which at most test_questions stories are drawn by the seed; if empty, stories are
    generated."""


def babilong(params: BabiLongParams) -> LongDocuments:
    """Return bAbI's stories in long documents."""

    def read(files: Sequence[str]) -> Iterator[Story]:
        return chain.from_iterable(read_stories(Path(path), params.task) for path in files)

    return LongDocuments(
        params,
        f"qa{params.task}",
        made=lambda count: make_stories(params.task, count, params.seed),
        noise=lambda sentences: noise_sentences(params.noise, sentences, params.seed),
        listed={
            split: partial(read, files) for split, files in (("train", params.train), ("test", params.test)) if files
        },
    )


DATASET = stories_of(babilong, BabiLongParams, apart=True)
