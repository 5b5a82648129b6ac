"""Section ``filter`` of params.yaml."""

from typing import Literal

from pydantic import Field, model_validator

from harr.params.fields import Fraction, Positive, Section
from harr.params.generator import ServedParams


class PreferencesParams(Section):
    """How queries are tried and compared, if queries are learnt (train.method leret)."""

    pool: Positive = 50
    """Number of training questions from which demonstrations are taken."""
    validation: Positive = 50
    """Number of training questions on which sets of demonstrations are compared."""
    candidates: Positive = 12
    """Number of sets of demonstrations that are compared."""
    prompts: Positive = 3
    """Number of the best sets that become prompts, in addition to the one without demonstrations."""
    demonstrations: Positive = 3
    """Maximum number of demonstrations in a prompt."""
    min_ap: Fraction = 0.0
    """Average precision above which an episode becomes a demonstration."""
    bootstrap_temperature: float = Field(1.0, ge=0)
    """Sampling temperature of the episodes that become demonstrations, whose styles differ by chance."""
    temperature: float = Field(0.1, ge=0)
    """Sampling temperature of the queries that are compared, which differ by their prompts."""
    sampled_at_once: Positive = 128
    """Number of completions that are sampled together."""
    held_out: float = Field(0.1, ge=0, lt=1)
    """Share of the questions whose preferences are measured but not learnt."""
    server: ServedParams | None = None
    """Server of the same model, such as vLLM, that writes the queries instead of this process; its temperature and
    max_tokens are not read."""

    @model_validator(mode="after")
    def _prompts_are_there(self) -> "PreferencesParams":
        if self.prompts > self.candidates:
            raise ValueError(
                f"{self.prompts} prompts cannot be chosen from {self.candidates} candidates; lower prompts or raise "
                "candidates"
            )
        return self


class FilterParams(Section):
    """Which training questions are worth learning from; the player that learns is sampled as in training."""

    group_size: int = Field(8, ge=2)
    """Number of rollouts per question."""
    target: Positive = 400
    """Number of kept questions at which the stage stops."""
    batch_size: Positive = 64
    """Number of questions that are played together."""
    keep: Literal["disagreeing", "all"] = "disagreeing"
    """Questions to keep: those whose rollouts differ in reward, or all, unplayed; values (pqn) also learn from
    questions that are always or never solved."""
    preferences: PreferencesParams | None = None
    """Trial of queries instead of whole rollouts, for train.method leret; null means as published."""
