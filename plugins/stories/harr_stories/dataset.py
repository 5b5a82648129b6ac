"""The data set of BABILong, ``harr_stories.dataset:DATASET``, and what every data set of stories is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from harr.datasets import Dataset, dataset_of
from harr.params.download import DatasetParams
from harr_stories.answers import exam_of_task
from harr_stories.babi import Story, make_stories, read_stories
from harr_stories.haystack import Exam, LongDocuments, documents
from harr_stories.noise import noise_sentences
from harr_stories.params import BabiLongParams, HaystackParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Stories(Dataset):
    """A data set of stories: ``stories`` makes :class:`LongDocuments` of its settings, for `harr lengths`."""

    stories: Callable[[Any], LongDocuments]


def exam_of(data: DatasetParams) -> Exam | None:
    """Return how questions of a data set of stories are asked and judged; None: as any others."""
    dataset, section = dataset_of(data)
    return dataset.stories(section).exam if isinstance(dataset, Stories) else None


def describe_noise(params: HaystackParams) -> str:
    """Return in words what documents of stories are made of."""
    between = "are five sentences again and again" if params.noise == "repeated" else f"is from {params.noise}"
    return f"documents of {params.sentences:,} sentences or paragraphs; what is told in between {between}"


def babilong(params: BabiLongParams) -> LongDocuments:
    """Return bAbI's stories in long documents (BABILong, arXiv 2406.10149), from official files or made."""

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
        exam=exam_of_task(params.task),
    )


DATASET = Stories(
    load=lambda params: documents(babilong(params)),
    origin=describe_noise,
    apart=True,
    settings=BabiLongParams,
    stories=babilong,
)
