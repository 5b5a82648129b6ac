"""Sections ``evaluate`` and ``lengths`` of params.yaml."""

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from harr.arms import ARMS, Arm
from harr.params.fields import NonEmpty, Positive, Section, Seed
from harr.params.generator import LocalParams, ScriptedParams, ServerParams

if TYPE_CHECKING:
    ArmName: TypeAlias = str
else:  # so that an editor offers what there is
    ArmName = Literal[tuple(ARMS)]


class EvaluateParams(Section):
    """Greedy play of every arm on the same questions."""

    max_questions: int = Field(0, ge=0)
    """0: all test questions."""
    arms: NonEmpty[ArmName] = ("bm25", "frozen", "history", "full")
    seeds: Positive = 3
    """How often every trained arm is trained, each time with another seed."""
    candidates: NonEmpty[Literal["corpus", "question"]] = ("corpus",)
    """Where to search; metrics of ``question`` carry the prefix ``given_``."""
    pass_at: tuple[Positive, ...] = ()
    """Also sample every question, and report the share solved by at least one of k samples."""
    samples: Positive = 8
    batch_size: Positive = 512
    reader: Annotated[ServerParams | LocalParams | ScriptedParams, Field(discriminator="kind")] | None = None
    """Who answers from what a pipeline without answers (leret) has found, so that answers are scored; null: nobody."""
    resamples: Positive = 10_000

    @property
    def arm_table(self) -> dict[str, Arm]:
        """The record of every arm by its name, in the order of ``arms``."""
        return {name: ARMS[name] for name in self.arms}

    @model_validator(mode="after")
    def _can_be_played(self) -> "EvaluateParams":
        if not self.arms:
            raise ValueError("arms is empty; name at least one, e.g. [frozen, full]")
        if self.pass_at and max(self.pass_at) > self.samples:
            raise ValueError(f"pass_at {max(self.pass_at)} needs as many samples, found {self.samples}; raise samples")
        return self


class LengthsParams(Section):
    """Evaluation over lengths (`python -m flows.lengths`); options of the command go first."""

    sentences: NonEmpty[Positive] = (100, 1000, 10_000, 40_000)
    """40,000 sentences of a book are about a million tokens; of the fictional encyclopaedia, 350,000."""
    questions: int = Field(0, ge=0)
    """Stories; 0: as many as the run's test split."""
    seed: Seed = 1
