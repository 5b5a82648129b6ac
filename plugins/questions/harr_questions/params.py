"""Section ``plugins.questions`` of params.yaml: what `harr questions` writes."""

from typing import Annotated, Literal

from pydantic import Field

from harr.params.fields import NonEmpty, Positive, Section
from harr.params.generator import LocalParams, ServedParams, Untaught


class WritingParams(Section):
    """Questions that a language model writes from the passages of section download (`harr questions`); no stage reads
    this section."""

    writer: Annotated[ServedParams | LocalParams, Field(discriminator="kind"), Untaught]
    """Language model that writes the questions, and answers them again; it writes its most likely tokens, unless its
    temperature is given."""
    hops: NonEmpty[Literal[1, 2]] = (1, 2)
    """Numbers of passages that a question needs; there are equally many questions of each."""
    train: Positive = 200
    """Number of training questions."""
    validation: int = Field(50, ge=0)
    """Number of validation questions."""
    test: Positive = 100
    """Number of test questions."""
    per_passage: int = Field(3, ge=1, le=10)
    """Maximum number of questions that are asked for at a time of one passage, or of two; fewer where there are
    passages enough."""
    min_words: Positive = 20
    """Minimum number of words of a passage that is asked about."""
