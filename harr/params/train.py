"""Section ``train`` of params.yaml: one class per method, composed of the parameters that it reads.

The class attributes are facts about a method, which ``harr/params/rules.py`` reads.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from harr.arms import ARMS
from harr.params.fields import Dotted, Fraction, Plain, Positive, Section
from harr.params.loop import LoopParams, StatesParams, UpdateParams
from harr.params.servers import ServerName
from harr.params.train_facts import LoraParams, ValidatedParams

UNTRAINED = tuple(name for name, arm in ARMS.items() if arm.learner == "retriever" and not arm.trained)
"""The arms of a retriever that are not trained."""
RETRIEVERS = (*UNTRAINED, *"rl_no_history infonce warm_start links_alone query_adapter trained".split())
"""The arms that a retriever is compared with after training."""


class InfoNCEParams(Section):
    """Supervision by gold passages (arm infonce, ``harr/train/infonce.py``): what is tuned for it alone."""

    learning_rate: float | None = Field(None, gt=0)
    """Learning rate of AdamW after the warm-up; null means train.optimizer.learning_rate."""
    temperature: float | None = Field(None, gt=0)
    """Divisor of the scores in the loss; null means retriever.temperature."""
    hard_negatives: int = Field(30, ge=0)
    """Maximum number of passages in a search's pool, none of them positive, from which a state is pushed away; 0 means
    only the positives of other questions."""


class PolicyParams(StatesParams, UpdateParams, LoopParams):
    """What a retriever's policy gradients and their baselines share."""

    learns: ClassVar[str] = "retriever"
    arms: ClassVar[tuple[str, ...]] = RETRIEVERS
    link_rate: ClassVar[float] = 0.3
    """Learning rate of the link term (retriever.link_features)."""
    credit: Literal["episode", "step"] = "episode"
    """What a step is credited with: the final reward of its episode, or what is gained from the step to the end."""
    warm_start: int = Field(0, ge=0)
    """Number of InfoNCE steps before the ``steps`` by reward, with the settings of ``infonce``; the arm warm_start is
    their result."""
    infonce: InfoNCEParams = InfoNCEParams()
    """Settings of the arm infonce and of the warm start."""

    @property
    def warm_steps(self) -> int:
        """Return the number of supervised steps before those by reward."""
        return self.warm_start

    @property
    def warm_rate(self) -> float:
        """Return the learning rate of the supervised steps."""
        return self.infonce.learning_rate or self.optimizer.learning_rate

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the warm start, if there is one."""
        return ("warm_start",) if self.warm_start else ()

    def of_infonce(self) -> Self:
        """Return the parameters of the arm infonce: its own rate, and as many steps as warm start and reward
        together."""
        optimizer = self.optimizer.model_copy(update={"learning_rate": self.warm_rate})
        return self.model_copy(update={"optimizer": optimizer, "steps": self.total_steps, "warm_start": 0})


class GRPOParams(PolicyParams):
    """Group-relative policy optimisation of the retriever (HARR, arXiv 2602.03645)."""

    method: Literal["grpo"]
    """Selects GRPO of the retriever."""
    discount: Fraction = 1.0
    """Factor by which a reward counts less for every step before it, with credit: step."""
    estimator: Literal["grpo", "bnpo", "dr_grpo", "rloo"] = "grpo"
    """Baseline, scale and averaging of the gradient (``harr/train/advantages.py``)."""

    @model_validator(mode="after")
    def _steps_are_discounted(self) -> "GRPOParams":
        if self.discount < 1 and self.credit != "step":
            raise ValueError("train.discount is for credit: step; set that, or leave discount out")
        return self


class PPOParams(PolicyParams):
    """Proximal policy optimisation with a value head on the state vector (arXiv 1707.06347)."""

    compares_groups: ClassVar[bool] = False
    method: Literal["ppo"]
    """Selects PPO of the retriever."""
    group_size: Positive = 8
    """Number of rollouts per question."""
    critic: Literal["head", "encoder"] = "head"
    """What estimates the value of a state: a small network on the vector of the encoder that learns, or a second
    encoder, all of whose layers learn, as in HARR's code."""
    kl_estimator: Literal["k1", "k3"] = "k1"
    """Estimate of the KL divergence that a step costs: the log-ratio to the base, or exp(r) - 1 - r of its negative r,
    which is never below 0."""
    discount: Fraction = 1.0
    """Factor by which a reward counts less for every step before it."""
    gae_lambda: Fraction = 0.95
    """Lambda of generalised advantage estimation: 1 gives Monte-Carlo returns, 0 one-step advantages."""
    value_learning_rate: float = Field(1e-2, gt=0)
    """Learning rate of the critic."""
    value_weight: float = Field(0.5, ge=0)
    """Weight of the value loss."""


class PQNParams(StatesParams, LoopParams):
    """Values of two towers instead of a policy (Q-RAG, arXiv 2511.07328; PQN, arXiv 2407.04811)."""

    learns: ClassVar[str] = "retriever"
    arms: ClassVar[tuple[str, ...]] = (*UNTRAINED, "no_positions", "trained")
    plays: ClassVar[tuple[str, ...]] = ("pick",)
    positions: ClassVar[bool] = True
    given_only: ClassVar[bool] = True
    compares_groups: ClassVar[bool] = False
    method: Literal["pqn"]
    """Selects PQN of two towers."""
    group_size: Positive = 1
    """Number of episodes per question in a step."""
    discount: Fraction = 0.99
    """Factor by which a reward counts less for every step before it."""
    return_mix: Fraction = 0.65
    """Lambda of the returns: 1 gives Monte-Carlo returns, 0 one-step targets."""
    cooling: Literal["even", "rate"] = "even"
    """How the temperature falls: evenly to a tenth of retriever.temperature, or in proportion to the learning rate,
    warm-up included, as published."""
    target_rate: float = Field(0.1, gt=0, le=1)
    """Share of the way that the target copies move towards the weights after every update."""
    random_steps: int = Field(0, ge=0)
    """Number of initial steps in which all passages are equally likely to be picked."""
    stop_at_gold: bool = True
    """Whether a training episode ends when all its gold is picked; in evaluation gold never ends one."""


class AgentParams(UpdateParams, LoopParams):
    """GRPO of the language model that searches and answers, by TRL (arXiv 2402.03300, 2503.09516)."""

    learns: ClassVar[str] = "language_model"
    arms: ClassVar[tuple[str, ...]] = ("base", "warmstart", "trained")
    plays: ClassVar[tuple[str, ...]] = ("search_r1", "r_search", "react")
    one_text: ClassVar[bool] = True
    sources: ClassVar[bool] = True
    method: Literal["agent"]
    """Selects GRPO of the language model."""
    loss: Literal["dapo", "grpo", "bnpo", "dr_grpo"] = "dapo"
    """How tokens are averaged: over the batch, within an episode first, over a pass, or by a constant."""
    scale: Literal["group", "batch", "none"] = "group"
    """Standard deviation by which a reward's distance from its group's mean is divided: the group's, the batch's, or
    none."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature of the rollouts."""
    max_tokens: Positive = 64
    """Maximum length of a completion in tokens; an episode has several."""
    episodes_per_pass: Positive = 16
    """Number of episodes per forward pass; gradients accumulate over a batch."""
    sampled_at_once: Positive = 128
    """Number of completions sampled together."""
    quantization: Literal["none", "nf4"] = "none"
    """Number format of the base: unchanged, or nf4, 4 bits under a LoRA (QLoRA, arXiv 2305.14314), which needs a CUDA
    GPU and the extra ``qlora``."""
    server: ServerName | None = None
    """vLLM servers that read the LoRA and sample the completions, by their name in section servers, addresses without
    /v1; with null, this process samples."""

    @model_validator(mode="after")
    def _servers_read_a_lora(self) -> "AgentParams":
        if self.server and self.lora is None:
            raise ValueError("train.server is sent a LoRA; set train.lora, or leave server out")
        for url in self.server.urls if self.server else ():
            if url.rstrip("/").endswith("/v1"):
                raise ValueError(f"train.server is the root of a vLLM server; leave /v1 out (found {url})")
        return self

    @model_validator(mode="after")
    def _passes_are_whole(self) -> "AgentParams":
        if self.optimizer.precision == "float16":
            raise ValueError(
                "train.method agent takes no float16, whose loss scale a resumed run would have lost; "
                "set train.optimizer.precision: bfloat16"
            )
        if self.questions_per_step * self.group_size % self.episodes_per_pass:
            raise ValueError(
                f"{self.questions_per_step} questions x {self.group_size} rollouts do not make whole passes of "
                f"{self.episodes_per_pass} episodes; set train.episodes_per_pass to a divisor"
            )
        return self

    @model_validator(mode="after")
    def _four_bits_are_frozen(self) -> "AgentParams":
        if self.quantization == "none":
            return self
        if self.lora is None:
            raise ValueError("train.quantization nf4 freezes the base; set train.lora, or quantization: none")
        if self.server:
            raise ValueError(
                "train.server takes no 4-bit base (vLLM would sample from other weights than learn); "
                "set train.quantization: none: LoRA in bfloat16"
            )
        return self


class LeReTParams(ValidatedParams):
    """Preferences between tried queries: SFT, then IPO, by TRL (LeReT, arXiv 2410.23214)."""

    learns: ClassVar[str] = "language_model"
    arms: ClassVar[tuple[str, ...]] = ("base", "few_shot", "few_shot_all", "sft", "trained")
    plays: ClassVar[tuple[str, ...]] = ("leret",)
    prefers: ClassVar[bool] = True
    method: Literal["leret"]
    """Selects SFT and IPO on preferences between queries."""
    iterations: Positive = 1
    """Number of times that queries are sampled and learnt from; from the second on, the trained model samples."""
    sft_epochs: Positive = 1
    """Number of passes over the best queries in SFT."""
    sft_batch: Positive = 8
    """Number of prompts per update in SFT."""
    sft_learning_rate: float = Field(1e-7, gt=0)
    """Learning rate of SFT after the warm-up."""
    ipo_epochs: Positive = 2
    """Number of passes over the pairs in IPO."""
    ipo_batch: Positive = 4
    """Number of pairs per update in IPO."""
    ipo_learning_rate: float = Field(1e-7, gt=0)
    """Learning rate of IPO after the warm-up."""
    ipo_target_margin_nats: float = Field(10.0, gt=0)
    """Margin, in nats of the whole query, by which the better query should gain log-probability over the worse one."""
    warmup_steps: int = Field(150, ge=0)
    """Number of updates over which the learning rate rises linearly, in SFT and in IPO; then it stays constant."""
    max_grad_norm: float = Field(10.0, gt=0)
    """Norm to which the gradient of an update is clipped."""
    rows_per_pass: Positive = 4
    """Number of prompts or pairs per forward pass; gradients accumulate over an update."""
    gradient_checkpointing: bool = False
    """Whether activations are recomputed in the backward pass, which takes less memory and more time."""
    max_tokens: Positive = 64
    """Maximum length of a query in tokens."""
    lora: LoraParams | None = LoraParams()
    """Adapter that learns; with null all weights are trained."""

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the model after SFT."""
        return ("sft",)

    @model_validator(mode="after")
    def _passes_are_whole(self) -> "LeReTParams":
        for name in ("sft_batch", "ipo_batch"):
            if getattr(self, name) % self.rows_per_pass:
                raise ValueError(
                    f"train.{name} {getattr(self, name)} does not make whole passes of {self.rows_per_pass}; "
                    "set train.rows_per_pass to a divisor"
                )
        return self


class FunctionTrainParams(LoopParams):
    """A method from another package."""

    foreign: ClassVar[bool] = True
    method: Literal["function"]
    """Selects a method of another package."""
    function: Dotted
    """Record of the method (``harr/builders/methods.py``), or its function ``train``, as ``package.module:name``."""
    learns: Literal["retriever", "language_model"]
    """Player that learns: the retriever, or the language model."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature of a language model that learns."""
    max_tokens: Positive = 64
    """Maximum length, in tokens, of the completions of a language model that learns."""
    settings: Plain = Field({})
    """The method's own parameters."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Return the arms of a method that trains the same player."""
        return (
            AgentParams.arms
            if self.learns == "language_model"
            else tuple(name for name in RETRIEVERS if not (ARMS[name].method or ARMS[name].inside))
        )


class ArmTrainParams(FunctionTrainParams):
    """Section ``train`` of an arm that such a method trains: the run's own loop, and the arm's settings."""

    run: ValidatedParams
    """Section ``train`` of the run, whose ``trained`` the arm is compared with."""

    @classmethod
    def of(cls, run: ValidatedParams, function: str, settings: Mapping[str, Any]) -> Self:
        """Return the section by which the method ``function`` trains an arm of a run."""
        loop = {name: getattr(run, name) for name in LoopParams.model_fields}
        return cls(method="function", function=function, learns="retriever", settings=settings, run=run, **loop)


TrainParams = Annotated[
    GRPOParams | PPOParams | PQNParams | AgentParams | LeReTParams | FunctionTrainParams,
    Field(discriminator="method"),
]
