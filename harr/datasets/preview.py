"""What would be trained on, told before anything is embedded: `harr preview`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harr.datasets import DATASETS
from harr.datasets.chunks import Spans
from harr.datasets.splits import divide
from harr.params.download import DatasetParams
from harr.types import Question


@dataclass(frozen=True)
class Preview:
    """The questions of a split in words: how many, of what level and kind, where the passages come from.

    ``left_out``: questions of the split that another split has.
    """

    split: str
    corpus: str
    questions: int
    left_out: int
    levels: dict[str, int]
    kinds: dict[str, int]
    examples: list[dict[str, str | list[str]]]


def read_split(params: DatasetParams, split: str, spans: Spans | None = None) -> tuple[list[Question], int]:
    """Return the questions of ``split`` as stage download would write them, and how many it would leave out of it.

    Nothing is written; no page is scraped. A hub's files come from ``root`` or through the hub's own cache.

    Raises:
        CorpusError: a file is missing or damaged, or a row is wrong.
    """
    found = DATASETS[params.dataset]
    source = found.load(params.model_copy(update={"scrape": None}), spans) if found.cut else found.load(params)
    if not found.vast:
        for _ in source.passages:
            pass
    test = list(source.test)
    if split == "test":
        return test, 0
    own = None if source.validation is None else list(source.validation)
    return divide(list(source.train), own, test, params.validation_questions).of(split)


def preview(params: DatasetParams, split: str, questions: Sequence[Question], left_out: int, examples: int) -> Preview:
    """Describe a split; ``examples`` is how many of its first questions are shown."""
    return Preview(
        split=split,
        corpus=DATASETS[params.dataset].origin(params),
        questions=len(questions),
        left_out=left_out,
        levels=_counts([question.level for question in questions]),
        kinds=_counts([question.kind for question in questions]),
        examples=[
            {"id": question.id, "question": question.text, "answers": list(question.answers)}
            for question in questions[:examples]
        ],
    )


def _counts(words: Sequence[str]) -> dict[str, int]:
    """Return how often each stands there, the most frequent first; nothing where none is given."""
    return dict(Counter(word for word in words if word).most_common())
