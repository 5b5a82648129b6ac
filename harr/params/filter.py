"""Section ``filter`` of params.yaml."""

from typing import Literal

from pydantic import Field, model_validator

from harr.params.fields import Fraction, Positive, Section


class PreferencesParams(Section):
    """How queries are tried and compared, where they are what is learnt (train.method leret)."""

    pool: Positive = 50
    """Training questions that demonstrations are taken from."""
    validation: Positive = 50
    """Training questions that sets of demonstrations are compared on."""
    candidates: Positive = 12
    """Sets of demonstrations that are compared."""
    prompts: Positive = 3
    """The best so many of them become prompts, beside the one without demonstrations."""
    demonstrations: Positive = 3
    """At most so many in a prompt."""
    min_ap: Fraction = 0.0
    """A play is demonstrated where its average precision is above this."""
    bootstrap_temperature: float = Field(1.0, ge=0)
    """Of the plays that are demonstrated: their styles differ by chance."""
    temperature: float = Field(0.1, ge=0)
    """Of the queries that are compared: they differ by their prompts."""
    sampled_at_once: Positive = 128
    """Completions that are sampled together."""
    held_out: float = Field(0.1, ge=0, lt=1)
    """Share of the questions whose preferences are not learnt but predicted."""
    levels: Literal["adjacent", "all"] = "adjacent"
    """A query is preferred to those of the next lower score, or to all of lower ones."""
    min_margin: Fraction = 0.0
    """Least difference of scores of a pair."""
    max_pairs: int = Field(0, ge=0)
    """Of a prompt; 0: no limit."""
    gain: Literal["accumulated", "marginal"] = "accumulated"
    """Average precision of all passages so far, or of this hop's alone by what was missing before."""
    num_partitions: Positive = 1
    partition: int = Field(0, ge=0)
    """Of so many parts of the questions this one is played, so that several machines can share them."""

    @model_validator(mode="after")
    def _parts_are_there(self) -> "PreferencesParams":
        if self.partition >= self.num_partitions:
            raise ValueError(f"partition {self.partition} is none of {self.num_partitions}; they count from 0")
        if self.prompts > self.candidates:
            raise ValueError(
                f"{self.prompts} prompts cannot be chosen from {self.candidates} candidates; lower prompts or raise "
                "candidates"
            )
        return self


class FilterParams(Section):
    """Which training questions are worth learning from."""

    group_size: int = Field(8, ge=2)
    target: Positive = 400
    """Stop when so many questions are kept."""
    batch_size: Positive = 64
    keep: Literal["disagreeing", "all"] = "disagreeing"
    """all: keep every question unplayed; values (pqn) learn from those that are always or never solved, too."""
    temperature: float = Field(1.0, gt=0)
    """Of the language model, where that is what learns; as in train."""
    max_tokens: Positive = 64
    """Of its completions; as in train."""
    preferences: PreferencesParams | None = None
    """Of train.method leret, which tries queries in place of whole rollouts; null: as published."""
