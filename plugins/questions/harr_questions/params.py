"""Section ``plugins.questions`` of params.yaml: what `harr questions` writes."""

from typing import Annotated, Literal

from pydantic import Field

from harr.params.fields import NonEmpty, Positive, Section
from harr.params.generator import LocalParams, ServedParams, Untaught


class WritingParams(Section):
    """Questions that a language model writes from the passages of section download (`harr questions`); no stage reads
    this section."""

    writer: Annotated[ServedParams | LocalParams, Field(discriminator="kind"), Untaught]
    """Language model that writes the questions and answers them again, by its most likely tokens unless it has a
    temperature."""
    hops: NonEmpty[Literal[1, 2]] = (1, 2)
    """Numbers of passages that questions need, in equal shares."""
    train: Positive = 200
    """Number of training questions."""
    validation: int = Field(50, ge=0)
    """Number of validation questions."""
    test: Positive = 100
    """Number of test questions."""
    per_passage: int = Field(3, ge=1, le=10)
    """Maximum number of questions asked for at a time about one passage, or about two; fewer if there are enough
    passages."""
    min_words: Positive = 20
    """Minimum number of words in a passage that is asked about."""
