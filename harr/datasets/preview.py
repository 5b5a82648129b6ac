"""Show what training would use, before anything is embedded: `harr preview`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harr.datasets import dataset_of
from harr.datasets.question_checks import drop_missing_gold, with_sound_answers
from harr.datasets.splits import Splits, divide
from harr.params.download import DatasetParams
from harr.types import Passage, Question


@dataclass(frozen=True)
class Preview:
    """A description of a split's questions: how many, of what level and kind, and where the passages come from.

    ``left_out``: number of the split's questions that another split has.
    """

    split: str
    corpus: str
    questions: int
    left_out: int
    levels: dict[str, int]
    kinds: dict[str, int]
    examples: list[dict[str, str | list[str]]]


CONTENTS = 300_000
"""Number of passages whose texts are kept for comparison with answers."""


@dataclass(frozen=True)
class Data:
    """A data set as stage download would write it: questions, and the parts of passages that they are compared with.

    Args:
        splits: the questions.
        ids: ids of all passages; None if they are too many to be read.
        contents: titles and texts of the first ``CONTENTS`` passages by id.
        gone: by split, ids of questions left out because a gold passage is not in the corpus.
        left_out: one line for every passage or document that could not be read.
    """

    splits: Splits
    ids: frozenset[str] | None
    contents: Mapping[str, str]
    gone: Mapping[str, Sequence[str]]
    left_out: Sequence[str]


def read_data(params: DatasetParams) -> Data:
    """Return a data set as stage download would write it.

    Nothing is written, and no web page is fetched. A hub's files come from ``root`` or the hub's own cache, and its
    passages are not read.

    Raises:
        CorpusError: a file is missing or damaged, or a row is wrong.
    """
    dataset, section = dataset_of(params)
    source = (dataset.preview or dataset.load)(section)
    ids: set[str] = set()
    contents: dict[str, str] = {}
    for passage in () if dataset.vast else source.passages:
        ids.add(passage.id)
        if len(contents) < CONTENTS:
            contents[passage.id] = passage.content
    streams = {"test": source.test, "train": source.train, "validation": source.validation}
    questions = {split: with_sound_answers(items)[0] for split, items in streams.items() if items is not None}
    gone: dict[str, list[str]] = {}
    if getattr(params, "missing_gold", "") == "drop":
        questions, gone = drop_missing_gold(questions, ids)
    near = getattr(section, "near_duplicates", "")
    train, dev, test = questions["train"], questions.get("validation"), questions["test"]
    splits = divide(train, dev, test, params.validation_questions, near)
    return Data(splits, None if dataset.vast else frozenset(ids), contents, gone, source.left_out)


def read_passages(params: DatasetParams) -> Iterable[Passage]:
    """Return a data set's passages without reading its questions.

    Raises:
        CorpusError: a file is missing or damaged, or a row is wrong.
    """
    dataset, section = dataset_of(params)
    return (dataset.preview or dataset.load)(section).passages


def preview(params: DatasetParams, split: str, questions: Sequence[Question], left_out: int, examples: int) -> Preview:
    """Describe a split; ``examples`` is the number of its first questions to show."""
    dataset, section = dataset_of(params)
    return Preview(
        split=split,
        corpus=dataset.origin(section),
        questions=len(questions),
        left_out=left_out,
        levels=_counts([question.level for question in questions]),
        kinds=_counts([question.kind for question in questions]),
        examples=[
            {"id": question.id, "question": question.text, "answers": list(question.answers or question.gold_ids)}
            for question in questions[:examples]
        ],
    )


def _counts(words: Sequence[str]) -> dict[str, int]:
    """Return how often each non-empty name occurs, the most frequent first."""
    return dict(Counter(word for word in words if word).most_common())
