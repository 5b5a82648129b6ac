"""Section ``download`` of params.yaml: one class per data set."""

from typing import Annotated, Any, Literal

from pydantic import Field

from harr.params.fields import Dotted, PathOrName, Plain, Section, Seed


class QuestionsParams(Section):
    """What all data sets share: validation questions."""

    validation_questions: int = Field(0, ge=0)
    """Number of validation questions, which training plays (train.validation.every) and never learns from; 0 means
    none. If the data set has none of its own, they are drawn from the training questions."""

    @property
    def validates(self) -> bool:
        """Return whether there may be validation questions."""
        return self.validation_questions > 0


class DrawnParams(QuestionsParams):
    """Existing questions, of which some may be drawn."""

    train_questions: int = Field(0, ge=0)
    """Maximum number of training questions, drawn from those that match; 0 means all."""
    test_questions: int = Field(0, ge=0)
    """Maximum number of test questions, drawn from those that match; 0 means all."""
    seed: Seed = 0
    """Seed of these draws, which are stratified by setting, type and number of hops."""


class NamedGoldParams(QuestionsParams):
    """Questions that name their gold passages, which may have been changed or removed since."""

    missing_gold: Literal["refuse", "drop"] = "refuse"
    """Treatment of questions with a gold passage that is not in the corpus: the stage ends, or they are left out and
    counted."""


class OwnQuestionsParams(DrawnParams):
    """Questions in your own files, in the format of docs/data.md."""

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
    """The files' names for our fields, such as {id: _id, text: body, answers: answers.text}; a dot leads into a nested
    field."""

    @property
    def validates(self) -> bool:
        """Return whether there may be validation questions."""
        return bool(self.validation) or super().validates


class JsonlParams(OwnQuestionsParams, NamedGoldParams):
    """Your own files, in the format of docs/data.md: JSON lines, or .json with one list; plain or gzipped."""

    dataset: Literal["jsonl"]
    """Selects your own files."""
    passages: tuple[PathOrName, ...] = Field(min_length=1)
    """Files with the passages of the corpus."""
    searchable_where: dict[str, Any] = Field({})
    """Fields and values of the passages that go into the index; the others serve as given candidates in training."""
    bad_passages: int = Field(0, ge=0)
    """Maximum number of unreadable passages, which are left out, each with its place and reason in
    data/corpus/left_out.txt; with 0 the first one ends the stage."""


class FunctionDatasetParams(NamedGoldParams):
    """A data set from another package."""

    dataset: Literal["function"]
    """Selects a function of another package."""
    function: Dotted
    """Function that returns passages and questions, or record of the data set (``harr/datasets/__init__.py``), as
    ``package.module:name``."""
    settings: Plain = Field({})
    """Keyword arguments of the function, or the data set's own parameters."""

    @property
    def validates(self) -> bool:
        """Return whether there may be validation questions: the function may bring its own."""
        return True


DatasetParams = Annotated[
    JsonlParams | FunctionDatasetParams,
    Field(discriminator="dataset"),
]
