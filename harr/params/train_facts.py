"""What is common to every method of section ``train``: facts that the rules read, and validation."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from harr.params.fields import Positive, Section


class TrainFacts(Section):
    """What the rules know of a method, besides ``learns`` and the ``arms`` that it is compared by."""

    foreign: ClassVar[bool] = False
    """Whether another package brings it, and nothing is known of what it needs."""
    plays: ClassVar[tuple[str, ...]] = ()
    """The pipelines that it plays; empty: all that are not another method's own."""
    one_text: ClassVar[bool] = False
    """Whether what the model reads must be one growing text: what a tool shows, the passages, becomes a part of it."""
    sources: ClassVar[bool] = False
    """Whether it learns from what other sources find, too."""
    positions: ClassVar[bool] = False
    """Whether its retriever may use positions of passages."""
    given_only: ClassVar[bool] = False
    """Whether its retriever ranks only the passages given with a question."""
    compares_groups: ClassVar[bool] = True
    """Whether the rollouts of a question are compared with each other."""
    prefers: ClassVar[bool] = False
    """Whether it learns from preferences between queries, which stage filter collects."""

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the models that its training passes through and leaves in folders within its own."""
        return ()


class ValidationParams(Section):
    """Validation questions (download.validation_questions), which are played while a method trains."""

    every: int = Field(0, ge=0)
    """Number of steps between two plays of all validation questions, which are also played before the first step and
    after the last; where there is train.checkpoints.every, a multiple of it. 0 means never."""
    keep: Literal["last", "best"] = "last"
    """Weights that are exported: those of the last step, or of the step after which validation was best."""

    @model_validator(mode="after")
    def _best_needs_validation(self) -> "ValidationParams":
        if self.keep == "best" and not self.every:
            raise ValueError("keep: best needs validation; set train.validation.every, or keep: last")
        return self


class ValidatedParams(TrainFacts):
    """Every method can be validated."""

    validation: ValidationParams = ValidationParams()
    """Validation questions, which are played while it trains."""


class LoraParams(Section):
    """Low-rank adapter of the model that learns (published: rank 32, alpha 64, all linear layers)."""

    rank: Positive = 32
    """Rank of the two matrices that are added to a linear layer."""
    alpha: Positive = 64
    """Scale of the adapter; what it adds is multiplied by alpha / rank."""
