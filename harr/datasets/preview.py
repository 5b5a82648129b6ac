"""What would be trained on, told before anything is embedded: `harr preview`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harr.datasets.chunks import Spans
from harr.datasets.hub import FILES, WIKI17, WIKI18
from harr.datasets.medquad import medquad
from harr.datasets.registry import DATASETS
from harr.params.download import (
    BabiLongParams,
    HoverParams,
    HubParams,
    JsonlParams,
    MedQuADParams,
    RulerParams,
    WorldParams,
)
from harr.types import Question

Section = WorldParams | JsonlParams | HubParams | HoverParams | BabiLongParams | RulerParams | MedQuADParams


@dataclass(frozen=True)
class Preview:
    """The questions of a split in words: how many, of what level and kind, where the passages come from.

    ``left_out``: training questions that are also test questions.
    """

    split: str
    corpus: str
    questions: int
    left_out: int
    levels: dict[str, int]
    kinds: dict[str, int]
    examples: list[dict[str, str | list[str]]]


def read_split(params: Section, split: str, spans: Spans | None = None) -> tuple[list[Question], int]:
    """Return the questions of ``split`` as stage download would write them, and how many it would leave out of
    training.

    Nothing is written; no page is scraped. A hub's files come from ``root`` or through the hub's own cache.

    Raises:
        CorpusError: a file is missing or damaged, or a row is wrong.
    """
    if isinstance(params, MedQuADParams) and spans:
        source = medquad(params.model_copy(update={"scrape": None}), spans, None)
    else:
        source = DATASETS[params.dataset](params)
    if not isinstance(params, HubParams | HoverParams):  # a hub's questions do not wait for 21 million passages
        for _ in source.passages:
            pass
    test = list(source.test)
    if split == "test":
        return test, 0
    known, train = {question.identity for question in test}, list(source.train)
    kept = [question for question in train if question.identity not in known]
    return kept, len(train) - len(kept)


def preview(params: Section, split: str, questions: Sequence[Question], left_out: int, examples: int) -> Preview:
    """Describe a split; ``examples`` is how many of its first questions are shown."""
    return Preview(
        split=split,
        corpus=corpus_of(params),
        questions=len(questions),
        left_out=left_out,
        levels=_counts([question.level for question in questions]),
        kinds=_counts([question.kind for question in questions]),
        examples=[
            {"id": question.id, "question": question.text, "answers": list(question.answers)}
            for question in questions[:examples]
        ],
    )


def corpus_of(params: Section) -> str:
    """Describe where the passages come from.

    >>> corpus_of(HubParams(dataset="hotpotqa", root="files"))
    'the paragraphs given with the questions of hotpotqa/hotpot_qa, from the folder files'
    """
    match params:
        case HubParams() | HoverParams():
            given = {"wiki18": WIKI18[0], "wiki17": WIKI17[0]}.get(getattr(params, "passages", "wiki17"), "")
            what = given or f"the paragraphs given with the questions of {FILES[params.dataset][0]}"
            return f"{what}, from {f'the folder {params.root}' if params.root else 'the hub'}"
        case JsonlParams():
            return f"the files {', '.join(params.passages)}"
        case WorldParams():
            return f"the fictional encyclopaedia, {params.passages:,} passages made from seed {params.seed}"
        case MedQuADParams():
            return f"MedQuAD's {params.documents}s, from {params.root or ', '.join((*params.train, *params.test))}"
        case BabiLongParams() | RulerParams():
            noise = "the fictional encyclopaedia" if params.noise == "world" else params.noise
            return f"documents of {params.sentences:,} sentences; what is told in between is from {noise}"


def _counts(words: Sequence[str]) -> dict[str, int]:
    """Return how often each stands there, the most frequent first; nothing where none is given."""
    return dict(Counter(word for word in words if word).most_common())
