"""Settings of the baselines that are trained beside ``full``, in section ``train`` of params.yaml."""

from typing import ClassVar

from pydantic import Field

from harr.params.fields import Section


class BaselineParams(Section):
    """A baseline that is trained beside ``full``: what is tuned for it alone."""

    is_warm_start: ClassVar[bool] = False
    """Whether it is what train.warm_start begins with."""
    learning_rate: float | None = Field(None, gt=0)
    """Learning rate of AdamW after the warm-up; null means train.learning_rate."""
    temperature: float | None = Field(None, gt=0)
    """Divisor of the scores in the loss; null means retriever.temperature."""


class ContrastParams(BaselineParams):
    """A baseline that draws a state to a positive passage and away from negatives."""

    hard_negatives: int = Field(30, ge=0)
    """Maximum number of passages of a search's pool, none of them a positive, that a state is drawn away from; 0 means
    the positives of other questions only."""


class InfoNCEParams(ContrastParams):
    """Supervision by gold passages (arm infonce, ``harr/train/infonce.py``)."""

    is_warm_start: ClassVar[bool] = True


class LratParams(ContrastParams):
    """Supervision by what good rollouts chose (arm lrat, ``harr/train/lrat.py``)."""


class ReplugParams(BaselineParams):
    """Supervision by the rewards of passages (arm replug, ``harr/train/replug.py``)."""

    target_temperature: float = Field(0.1, gt=0)
    """Divisor of the rewards in the distribution that is learnt."""
