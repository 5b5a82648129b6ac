"""What all methods of section ``train`` share: facts that the rules read, and validation."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from harr.params.fields import Positive, Section


class TrainFacts(Section):
    """What the rules know about a method, besides what ``learns`` and the ``arms`` to compare."""

    foreign: ClassVar[bool] = False
    """Whether it comes from another package, so that nothing is known about what it needs."""
    plays: ClassVar[tuple[str, ...]] = ()
    """The pipelines that it plays; empty: all except other methods' own."""
    one_text: ClassVar[bool] = False
    """Whether the model must read one growing text, in which the passages that a tool shows are included."""
    sources: ClassVar[bool] = False
    """Whether it also learns from what other sources find."""
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
        """Return the intermediate models that its training leaves in subfolders of its own."""
        return ()


class ValidationParams(Section):
    """Validation questions (download.validation_questions), played during training."""

    every: int = Field(0, ge=0)
    """Number of steps between two plays of all validation questions, which are also played before the first step and
    after the last; a multiple of train.checkpoints.every, if the method has it. 0 means never."""
    keep: Literal["last", "best"] = "last"
    """Weights that are exported: those of the last step, or of the step after which validation was best."""

    @model_validator(mode="after")
    def _best_needs_validation(self) -> "ValidationParams":
        if self.keep == "best" and not self.every:
            raise ValueError("keep: best needs validation; set train.validation.every, or keep: last")
        return self


class ValidatedParams(TrainFacts):
    """A method that can be validated."""

    validation: ValidationParams = ValidationParams()
    """Validation questions, played during training."""


class LoraParams(Section):
    """Low-rank adapter of the model that learns (published: rank 32, alpha 64, all linear layers)."""

    rank: Positive = 32
    """Rank of the two matrices that are added to a linear layer."""
    alpha: Positive = 64
    """Scale of the adapter; its output is multiplied by alpha / rank."""
