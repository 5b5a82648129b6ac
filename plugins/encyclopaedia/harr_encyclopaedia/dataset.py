"""The encyclopaedia as a data set, and its sentences as the noise of long documents."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from harr.datasets import Dataset
from harr.datasets.source import Source
from harr.params.download import QuestionsParams
from harr.params.fields import NonEmpty, Positive, Seed
from harr_encyclopaedia.world import make_world

_SMALLEST = 2000
"""Number of passages whose sentences are the noise of short documents."""
_OF_A_PASSAGE = 3
"""Mean number of sentences in a passage that do not occur in an earlier one."""


class WorldParams(QuestionsParams):
    """Settings of the encyclopaedia, which is generated, not downloaded."""

    passages: int = Field(2000, ge=200, le=5_000_000)
    """Number of passages; everything else scales with it."""
    train_questions: Positive = 800
    """Number of training questions."""
    test_questions: Positive = 400
    """Number of test questions."""
    hops: NonEmpty[Annotated[int, Field(ge=1, le=4)]] = (2, 3, 4)
    """Numbers of searches that questions need, in equal shares."""
    sources: bool = False
    """Whether every passage names its source: people and towns General, firms News, works and schools Academy."""
    seed: Seed = 0
    """Random seed of the encyclopaedia."""


def load_world(params: WorldParams) -> Source:
    """Make the encyclopaedia; questions of two splits never share an entity."""
    validating = params.validation_questions
    made = make_world(params.passages, params.seed, validation=validating > 0)
    return Source(
        passages=made.passages(sources=params.sources),
        train=made.questions("train", params.train_questions, params.hops),
        test=made.questions("test", params.test_questions, params.hops),
        validation=made.questions("validation", validating, params.hops) if validating else None,
    )


def _tell_origin(params: WorldParams) -> str:
    return f"the fictional encyclopaedia, {params.passages:,} passages made from seed {params.seed}"


DATASET = Dataset(load_world, _tell_origin, apart=True, settings=WorldParams)


def noise(at_least: int, seed: int) -> Iterator[str]:
    """Yield passages with at least twice ``at_least`` sentences, for ``noise`` of a data set of stories.

    >>> next(noise(10, seed=0)).endswith(".")
    True
    """
    world = make_world(max(_SMALLEST, -(-2 * at_least // _OF_A_PASSAGE)), seed)
    return (passage.text for passage in world.passages())
