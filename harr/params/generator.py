"""Section ``generator`` of params.yaml: one class per kind of language model."""

from typing import Any, Literal

from pydantic import Field, model_validator

from harr.params.fields import Address, MaybePathOrName, PathOrName, Positive, Section
from harr.params.train import LoraParams


class ScriptedParams(Section):
    """Deterministic planner and reader for the fictional world."""

    kind: Literal["scripted"]


class ServerParams(Section):
    """Any OpenAI-compatible endpoint."""

    kind: Literal["server"]
    base_url: Address
    model: PathOrName
    key_variable: str = "OPENAI_API_KEY"
    """Name of the environment variable with the key; may be unset for a local server."""
    temperature: float = Field(0.7, ge=0)
    max_tokens: Positive = 512
    extra_body: dict[str, Any] = Field({})
    """Sent with every request, e.g. ``{chat_template_kwargs: {enable_thinking: false}}`` for vLLM."""
    concurrency: Positive = 32
    timeout_seconds: float = Field(60.0, gt=0)
    """One attempt."""
    deadline_seconds: float = Field(300.0, gt=0)
    """One request with all its attempts; a server may restart meanwhile."""


class LocalParams(Section):
    """A causal language model in this process: a folder or hub name."""

    kind: Literal["local"]
    model: PathOrName
    temperature: float = Field(0.0, ge=0)
    max_tokens: Positive = 256
    batch_size: Positive = 64


class SmallLMParams(Section):
    """A causal language model that stage ``generator`` trains from scratch for the fictional world."""

    kind: Literal["small_lm"]
    plays: Literal["search_r1", "r_search", "leret"] = "search_r1"
    """It learns from traces of this pipeline (of leret: from queries in several styles), and plays no other."""
    steps: Positive = 1500
    """Updates of 4,096 tokens."""
    vocabulary: int = Field(2600, ge=300)
    width: int = Field(128, ge=32, multiple_of=32)
    layers: int = Field(4, ge=2)
    temperature: float = Field(0.0, ge=0)
    max_tokens: Positive = 64
    batch_size: Positive = 32


class WarmstartParams(Section):
    """A causal language model that stage ``generator`` teaches by demonstrations before it plays (supervised, TRL)."""

    kind: Literal["warmstart"]
    model: PathOrName
    """What it begins with: a folder or a cached hub name."""
    demonstrations: MaybePathOrName = ""
    """JSON lines: ``{"messages": [...]}`` or ``{"pieces": [[text, learnt], ...]}`` a line
    (``harr/generator/demonstrations.py``). Empty: traces of fictional worlds are made."""
    traces: Positive = 2000
    """So many are made where no file is named."""
    template: Literal["plain", "chatml", "bare"] = "plain"
    """Of the traces that are made: that of the pipeline."""
    epochs: Positive = 3
    steps: int = Field(0, ge=0)
    """Updates; 0: as many as the epochs take."""
    learning_rate: float = Field(1e-4, gt=0)
    rows_per_step: Positive = 16
    """Demonstrations of an update."""
    rows_per_pass: Positive = 4
    """Demonstrations per forward pass; gradients accumulate over an update."""
    max_length: int = Field(2560, ge=8)
    """Tokens; longer demonstrations are left out and counted."""
    gradient_checkpointing: bool = False
    lora: LoraParams | None = LoraParams(rank=16, alpha=16)
    """Merged at the end; null: all weights are trained."""
    temperature: float = Field(0.0, ge=0)
    max_tokens: Positive = 256
    batch_size: Positive = 64

    @model_validator(mode="after")
    def _passes_are_whole(self) -> "WarmstartParams":
        if self.rows_per_step % self.rows_per_pass:
            raise ValueError(
                f"{self.rows_per_step} demonstrations a step do not make whole passes of {self.rows_per_pass}; "
                "set generator.rows_per_pass to a divisor"
            )
        return self


class NoGeneratorParams(Section):
    """The pipeline needs no generator."""

    kind: Literal["none"]
