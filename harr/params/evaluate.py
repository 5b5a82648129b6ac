"""Section ``evaluate`` of params.yaml."""

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from harr.arms import ARMS, Arm, method_arm, player_arm, retriever_arm
from harr.params.fields import Dotted, NonEmpty, Plain, Positive, Section
from harr.params.generator import FunctionGeneratorParams, LocalParams, ServedParams, Untaught

if TYPE_CHECKING:
    ArmName: TypeAlias = str
else:  # so that an editor offers the names
    ArmName = Literal[tuple(ARMS)]


class ForeignArmParams(Section):
    """An arm from another package (docs/arms.md): one of retriever, method and player."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    """Name of the arm in tables and plots: letters, digits and _."""
    retriever: Dotted | None = None
    """Class or function that makes its retriever, as ``package.module:name``."""
    method: Dotted | None = None
    """Method that trains it, named as in train.function."""
    player: Dotted | None = None
    """Function that makes the player of ``trained``, if a language model learns."""
    settings: Plain = Field({})
    """Settings passed to it unchanged."""

    @property
    def arm(self) -> Arm:
        """Return its record."""
        if self.method:
            return method_arm(self.method, self.settings)
        return (
            player_arm(self.player, self.settings)
            if self.player
            else retriever_arm(self.retriever or "", self.settings)
        )

    @model_validator(mode="after")
    def _is_one(self) -> "ForeignArmParams":
        if len([one for one in (self.retriever, self.method, self.player) if one]) != 1:
            raise ValueError(f"arm {self.name}: give one of retriever, method and player")
        return self


ArmParams = Annotated[
    Annotated[ArmName, Tag("(name)")] | Annotated[ForeignArmParams, Tag("(function)")],
    Discriminator(lambda value: "(name)" if isinstance(value, str) else "(function)"),
]


class EvaluateParams(Section):
    """Greedy play of every arm on the same questions."""

    max_questions: int = Field(0, ge=0)
    """Maximum number of test questions, drawn with the run's seed and stratified by setting and type; 0 means all."""
    arms: NonEmpty[ArmParams] = ("bm25", "frozen", "history", "trained")
    """Players that are compared: names from ``harr/arms.py``, or named retrievers, methods and players of another
    package."""
    seeds: Positive = 3
    """Number of times that every trained arm is trained, each with another seed."""
    candidates: NonEmpty[Literal["corpus", "question"]] = ("corpus",)
    """Passages that are searched: the whole corpus or those given with the question; metrics of the latter have the
    prefix ``given_``."""
    pass_at: tuple[Positive, ...] = ()
    """Numbers k of samples of a retriever that learns; for each, the share of questions that at least one of k samples
    solves is reported."""
    samples: Positive = 8
    """Number of samples per question for ``pass_at`` and the arms of a player."""
    sample_temperature: float | None = Field(None, gt=0)
    """Divisor of the scores when a retriever is sampled for ``pass_at``; null means retriever.temperature."""
    batch_size: Positive = 512
    """Number of questions that are played together."""
    reader: (
        Annotated[ServedParams | LocalParams | FunctionGeneratorParams, Field(discriminator="kind"), Untaught] | None
    ) = None
    """Model that answers from what a pipeline without answers (leret) has found, so that answers are scored; with null
    they are not."""
    audits: dict[Dotted, Plain] = Field({})
    """Functions of other packages that look for evidence against ``trained`` in the episodes, each with its settings
    (docs/extend.md)."""
    resamples: Positive = 10_000
    """Number of bootstrap draws for intervals and p values."""

    @property
    def arm_table(self) -> dict[str, Arm]:
        """Return the record of every arm by its name, in the order of ``arms``."""
        return {
            arm if isinstance(arm, str) else arm.name: ARMS[arm] if isinstance(arm, str) else arm.arm
            for arm in self.arms
        }

    @model_validator(mode="after")
    def _can_be_played(self) -> "EvaluateParams":
        names = [arm if isinstance(arm, str) else arm.name for arm in self.arms]
        if repeated := [name for number, name in enumerate(names) if name in names[:number]]:
            raise ValueError(f"arms names {repeated[0]} twice; leave one out, or name it otherwise")
        if ours := [arm.name for arm in self.arms if not isinstance(arm, str) and arm.name in ARMS]:
            raise ValueError(f"arms: {ours[0]} is an arm of our own; give yours another name")
        if self.pass_at and max(self.pass_at) > self.samples:
            raise ValueError(f"pass_at {max(self.pass_at)} needs as many samples, found {self.samples}; raise samples")
        return self
