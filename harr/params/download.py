"""Section ``download`` of params.yaml: one class per data set."""

from typing import Annotated, Any, Literal

from pydantic import Field

from harr.params.fields import Dotted, PathOrName, Plain, Section, Seed


class QuestionsParams(Section):
    """What all data sets share: questions to validate with."""

    validation_questions: int = Field(0, ge=0)
    """Number of validation questions, which training plays (train.validation.every) and never learns from; 0 means none.
    Where the data set has none of its own, they are drawn from the training questions."""

    @property
    def validates(self) -> bool:
        """Return whether there may be validation questions."""
        return self.validation_questions > 0


class DrawnParams(QuestionsParams):
    """Questions that are there, of which some may be drawn."""

    train_questions: int = Field(0, ge=0)
    """Maximum number of training questions, drawn from those that match; 0 means all."""
    test_questions: int = Field(0, ge=0)
    """Maximum number of test questions, drawn from those that match; 0 means all."""
    seed: Seed = 0
    """Seed of these draws, of as large a share of every setting, type and number of hops as of all."""


class NamedGoldParams(QuestionsParams):
    """Questions that name their gold passages, which somebody else may have changed or removed."""

    missing_gold: Literal["refuse", "drop"] = "refuse"
    """Treatment of questions with a gold passage that is not in the corpus: the stage ends, or they are left out and
    counted."""


class OwnQuestionsParams(DrawnParams):
    """Questions in files of your own, in the shape of docs/data.md."""

    train: tuple[PathOrName, ...]
    """Files with training questions."""
    test: tuple[PathOrName, ...]
    """Files with test questions."""
    validation: tuple[PathOrName, ...] = ()
    """Files with validation questions, of which validation_questions are drawn (0: all); if empty, they are drawn from
    the training questions."""
    train_where: dict[str, Any] = Field({})
    """Fields and values of the training questions to keep."""
    test_where: dict[str, Any] = Field({})
    """Fields and values of the test questions to keep."""
    near_duplicates: Literal["keep", "drop", "refuse"] = "keep"
    """Treatment of training questions that are nearly test questions (four fifths of the words, and an answer or gold
    passage in common): kept and counted, left out, or the stage ends."""
    columns: dict[str, str] = Field({})
    """Names that the files have for our fields, such as {id: _id, text: body, answers: answers.text}; a dot leads into
    a field of fields."""

    @property
    def validates(self) -> bool:
        """Return whether there may be validation questions."""
        return bool(self.validation) or super().validates


class JsonlParams(OwnQuestionsParams, NamedGoldParams):
    """Files of your own, in the shape of docs/data.md: JSON lines, or .json with one list; plain or gzipped."""

    dataset: Literal["jsonl"]
    """Selects files of your own."""
    passages: tuple[PathOrName, ...] = Field(min_length=1)
    """Files with the passages of the corpus."""
    searchable_where: dict[str, Any] = Field({})
    """Fields and values of the passages that go into the index; the others serve as given candidates in training."""
    bad_passages: int = Field(0, ge=0)
    """Maximum number of passages that cannot be read and are left out, each with its place and reason in
    data/corpus/left_out.txt; with 0 the first one ends the stage."""


class FunctionDatasetParams(NamedGoldParams):
    """A data set that another package brings."""

    dataset: Literal["function"]
    """Selects a function of another package."""
    function: Dotted
    """Function that returns passages and questions, or record of the data set (``harr/datasets/__init__.py``), as
    ``package.module:name``."""
    settings: Plain = Field({})
    """Keyword arguments that the function is called with, or parameters of the data set's own."""

    @property
    def validates(self) -> bool:
        """Return whether there may be validation questions: the function may bring its own."""
        return True


DatasetParams = Annotated[
    JsonlParams | FunctionDatasetParams,
    Field(discriminator="dataset"),
]
