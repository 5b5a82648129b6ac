"""The loop of section ``train``: steps of rollouts and updates, and the optimizer that takes them."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from harr.params.fields import Fraction, Positive, Section
from harr.params.train_facts import LoraParams, ValidatedParams

Momentum = Annotated[float, Field(ge=0, lt=1)]


class OptimizerParams(Section):
    """AdamW, its learning-rate schedule, and how gradients are computed."""

    learning_rate: float = Field(5e-4, gt=0)
    """Learning rate of AdamW after the warm-up."""
    warmup_steps: int = Field(2, ge=0)
    """Number of steps over which the learning rate rises linearly."""
    final_rate: Fraction = 1.0
    """Share of the learning rate to which it falls."""
    decay: Literal["even", "linear", "cosine"] = "even"
    """How the learning rate falls: linearly over all steps, or after the warm-up linearly or by a quarter of a cosine,
    as in Q-RAG's two runs."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay of AdamW."""
    betas: tuple[Momentum, Momentum] = (0.9, 0.999)
    """Shares of the running means of gradient and squared gradient that AdamW keeps at an update."""
    epsilon: float = Field(1e-8, gt=0)
    """Number that AdamW adds to the root of the squared gradient."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Norm to which the gradient of an update is clipped."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "float32"
    """Number format of the forward pass; the weights that learn stay in float32. With auto it is bfloat16 if the
    processor or GPU multiplies it natively (AVX512_BF16, AMX), and float32 elsewhere, where bfloat16 takes 20 times as
    long."""
    gradient_checkpointing: bool = False
    """Whether activations are recomputed in the backward pass, which takes less memory and more time."""

    @property
    def adamw(self) -> dict[str, Any]:
        """Return the arguments of AdamW."""
        return {"lr": self.learning_rate, "betas": self.betas, "eps": self.epsilon, "weight_decay": self.weight_decay}


class CheckpointParams(Section):
    """Checkpoints, and the average reward that detects the best of them and a collapse."""

    every: Positive = 5
    """Number of steps between two checkpoints; PQN re-encodes all sentences as often (those just learnt from at every
    step)."""
    window: Positive = 10
    """Number of steps in an average; after as many steps in which no group's rewards differ (GRPO), the run stops."""
    drop: Fraction = 0.5
    """Share of the best average reward below which the average reward ends the run; 0 means never."""


class LoopParams(ValidatedParams):
    """Steps of rollouts and updates, with checkpoints and a guard."""

    steps: Positive = 40
    """Number of training steps."""
    questions_per_step: Positive = 16
    """Number of questions per step."""
    group_size: int = Field(8, ge=2)
    """Number of rollouts per question."""
    optimizer: OptimizerParams = OptimizerParams()
    """Settings of AdamW and of the gradients."""
    checkpoints: CheckpointParams = CheckpointParams()
    """When weights are saved, and the collapse that ends a run early."""
    lora: LoraParams | None = LoraParams()
    """Adapter that learns; with null the model's own layers are trained (full fine-tuning)."""

    @property
    def warm_steps(self) -> int:
        """Return the number of supervised steps before those by reward."""
        return 0

    @property
    def warm_rate(self) -> float:
        """Return the learning rate of the supervised steps."""
        return self.optimizer.learning_rate

    @property
    def total_steps(self) -> int:
        """Return the number of all steps, supervised and by reward."""
        return self.warm_steps + self.steps

    @model_validator(mode="after")
    def _validates_where_it_saves(self) -> "LoopParams":
        if self.validation.every % self.checkpoints.every:
            raise ValueError(
                f"train.validation.every {self.validation.every} is no multiple of train.checkpoints.every "
                f"{self.checkpoints.every}, where weights are saved; change one of them"
            )
        return self


class UpdateParams(Section):
    """Clipped policy gradient, with several updates per batch of rollouts, kept near the initial model."""

    num_iterations: Positive = 1
    """Number of updates per batch of rollouts."""
    clip: tuple[Fraction, Annotated[float, Field(ge=0)]] = (0.2, 0.2)
    """Distances below and above 1 at which the ratio of probabilities is clipped."""
    kl_weight: float = Field(0.0, ge=0)
    """Weight of the KL divergence from the base model (adapter off): a term of the loss; with PPO, a cost of every
    step."""

    @model_validator(mode="after")
    def _kl_needs_an_adapter(self) -> "UpdateParams":
        if self.kl_weight > 0 and getattr(self, "lora", None) is None:
            raise ValueError("train.kl_weight is the distance from the base under the adapter; set train.lora")
        return self


class StatesParams(Section):
    """Forward passes over the distinct states of a batch."""

    states_per_pass: Positive = 64
    """Number of distinct states per forward pass; gradients accumulate over a batch."""
