"""The data set: section ``download`` of params.yaml with ``dataset: function``."""

from typing import Any

from pydantic import Field

from harr.datasets import Dataset
from harr.datasets.source import Source
from harr.params.download import QuestionsParams
from harr.params.fields import Positive, Seed
from harr_people.people import RELATIONS, People


class PeopleParams(QuestionsParams):
    """Settings of the people's world (``download.settings``)."""

    people: int = Field(200, ge=60, le=20_000)
    """Number of people; half of them are for training, 15 in 100 for validation and 35 in 100 for test questions."""
    train_questions: Positive = 800
    """Number of training questions."""
    test_questions: Positive = 400
    """Number of test questions."""
    seed: Seed = 0
    """Random seed of the world."""


def load(params: PeopleParams) -> Source:
    """Make the world; nobody is linked to people of another split."""
    world = People(params.people, RELATIONS, params.seed)
    validating = params.validation_questions
    return Source(
        passages=world.passages(),
        train=world.questions("train", params.train_questions),
        test=world.questions("test", params.test_questions),
        validation=world.questions("validation", validating) if validating else None,
    )


def describe_origin(params: Any) -> str:
    """Describe where passages about ``people`` from a ``seed`` come from; other packages' data sets also make people.

    >>> describe_origin(PeopleParams(people=60))
    'the fictional world of 60 people, 8 passages each, from seed 0'
    """
    return f"the fictional world of {params.people:,} people, {RELATIONS} passages each, from seed {params.seed}"


DATASET = Dataset(load, describe_origin, apart=True, settings=PeopleParams)
