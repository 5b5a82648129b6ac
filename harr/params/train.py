"""Section ``train`` of params.yaml: one class per method."""

from typing import Literal

from pydantic import Field, model_validator

from harr.params.fields import Fraction, MaybeAddress, Positive, Section


class LoraParams(Section):
    """Low-rank adapter of the query encoder (published: rank 32, alpha 64, all linear layers)."""

    rank: Positive = 32
    alpha: Positive = 64


class TrainingParams(Section):
    """What every method that trains the retriever shares."""

    steps: Positive = 40
    questions_per_step: Positive = 16
    group_size: int = Field(8, ge=2)
    """Rollouts of every question."""
    learning_rate: float = Field(5e-4, gt=0)
    warmup_steps: int = Field(2, ge=0)
    final_rate: Fraction = 1.0
    """The learning rate falls evenly to this share of itself."""
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    num_iterations: Positive = 1
    """Updates per batch of rollouts."""
    clip_low: Fraction = 0.2
    clip_high: float = Field(0.2, ge=0)
    credit: Literal["episode", "step"] = "episode"
    """episode: a final reward belongs to the whole episode; step: what each step added to it."""
    curriculum_stages: Positive = 1
    """Learn from the easiest 1/S of the questions first, then 2/S, ..., at last from all."""
    states_per_pass: Positive = 64
    """Distinct states per forward pass; gradients accumulate over a batch."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    gradient_checkpointing: bool = False
    checkpoint_every: Positive = 5
    """Steps; as often PQN encodes all sentences anew (those just learnt from at every step)."""
    guard_window: Positive = 10
    """Rewards are averaged over so many steps to find the best checkpoint and a collapse; of as many steps in which no
    group's rewards differ (GRPO), the run stops."""
    guard_drop: Fraction = 0.5
    """Stop where that average falls below so much of its best; 0: never."""
    lora: LoraParams | None = LoraParams()
    """null: no adapter, the encoder's own layers are trained (full fine-tuning)."""

    @model_validator(mode="after")
    def _kl_needs_an_adapter(self) -> "TrainingParams":
        if self.lora is None and getattr(self, "kl_weight", 0.0) > 0:
            raise ValueError("train.kl_weight is the distance from the base under the adapter; set train.lora")
        return self


class GRPOParams(TrainingParams):
    """Group-relative policy optimisation of the retriever (HARR, arXiv 2602.03645)."""

    method: Literal["grpo"]
    estimator: Literal["grpo", "bnpo", "dr_grpo", "rloo"] = "grpo"
    """Baseline, scale and averaging of the gradient (``harr/train/advantages.py``)."""
    kl_weight: float = Field(0.0, ge=0)
    """Weight of the KL to the base encoder (adapter off), k3 estimator."""


class PPOParams(TrainingParams):
    """Proximal policy optimisation with a value head on the state vector (arXiv 1707.06347)."""

    method: Literal["ppo"]
    discount: Fraction = 1.0
    gae_lambda: Fraction = 0.95
    value_learning_rate: float = Field(1e-2, gt=0)
    value_weight: float = Field(0.5, ge=0)
    value_clip: float = Field(0.2, gt=0)
    kl_weight: float = Field(0.0, ge=0)
    """Weight of the KL to the base encoder, taken off every step's reward."""
    entropy_weight: float = Field(0.0, ge=0)


class LeReTParams(Section):
    """Preferences between queries that were tried: SFT, then IPO, by TRL (LeReT, arXiv 2410.23214)."""

    method: Literal["leret"]
    iterations: Positive = 1
    """How often is sampled and trained; from the second on, the model that was trained before samples."""
    sft_epochs: Positive = 1
    sft_batch: Positive = 8
    """Prompts of an update."""
    sft_learning_rate: float = Field(1e-7, gt=0)
    ipo_epochs: Positive = 2
    ipo_batch: Positive = 4
    """Pairs of an update."""
    ipo_learning_rate: float = Field(1e-7, gt=0)
    ipo_target_margin_nats: float = Field(10.0, gt=0)
    """By how much more the better query should gain in log-probability than the worse one, of the whole query."""
    warmup_steps: int = Field(150, ge=0)
    """The learning rate rises evenly, in SFT and in IPO; then it stays."""
    max_grad_norm: float = Field(10.0, gt=0)
    rows_per_pass: Positive = 4
    """Prompts or pairs per forward pass; gradients accumulate over an update."""
    gradient_checkpointing: bool = False
    max_tokens: Positive = 64
    """Of a query."""
    lora: LoraParams | None = LoraParams()
    """null: all weights are trained."""

    @model_validator(mode="after")
    def _passes_are_whole(self) -> "LeReTParams":
        for name in ("sft_batch", "ipo_batch"):
            if getattr(self, name) % self.rows_per_pass:
                raise ValueError(
                    f"train.{name} {getattr(self, name)} does not make whole passes of {self.rows_per_pass}; "
                    "set train.rows_per_pass to a divisor"
                )
        return self


class PQNParams(TrainingParams):
    """Values of two towers instead of a policy (Q-RAG, arXiv 2511.07328; PQN, arXiv 2407.04811)."""

    method: Literal["pqn"]
    group_size: Positive = 1
    """Episodes of every question in a step."""
    discount: Fraction = 0.99
    return_mix: Fraction = 0.65
    """Lambda: 1 gives Monte-Carlo returns, 0 one-step targets."""
    final_temperature: Fraction = 0.1
    """retriever.temperature falls evenly over the steps, down to this share of itself and no lower."""
    target_rate: float = Field(0.1, gt=0, le=1)
    """Share of the way that the target copies go after every update."""
    random_steps: int = Field(0, ge=0)
    """First steps in which all passages are equally likely to be picked."""
    stop_at_gold: bool = True
    """In training an episode ends when all its gold is picked; in evaluation gold never ends one."""

    @model_validator(mode="after")
    def _reads_all_that_is_set(self) -> "PQNParams":
        unread = sorted({"num_iterations", "clip_low", "clip_high", "credit"} & self.model_fields_set)
        if unread:
            raise ValueError(f"train.method pqn does not read {', '.join(unread)}; leave it out")
        return self


class AgentParams(TrainingParams):
    """GRPO of the language model that searches and answers, by TRL (arXiv 2402.03300, 2503.09516)."""

    method: Literal["agent"]
    loss: Literal["dapo", "grpo", "bnpo", "dr_grpo"] = "dapo"
    """How tokens are averaged: over the batch, within an episode first, over a pass, or by a constant."""
    scale: Literal["group", "batch", "none"] = "group"
    """By what deviation a reward's distance from its group's mean is divided."""
    kl_weight: float = Field(0.0, ge=0)
    temperature: float = Field(1.0, gt=0)
    max_tokens: Positive = 64
    """Of a completion; an episode has several."""
    mask_cut: bool = False
    """Learn nothing from an episode whose last completion was cut at ``max_tokens``."""
    episodes_per_pass: Positive = 16
    """Episodes per forward pass; gradients accumulate over a batch."""
    sampled_at_once: Positive = 128
    """Completions that are sampled together."""
    quantization: Literal["none", "nf4"] = "none"
    """nf4: the base in 4 bits under a LoRA (QLoRA, arXiv 2305.14314); needs a CUDA GPU and the extra ``qlora``."""
    vllm: Literal["none", "colocate", "server"] = "none"
    """Who samples: this process, vLLM in this process on the same GPU, or a vLLM server that is sent the weights."""
    vllm_memory: float = Field(0.3, gt=0, lt=1)
    """Of colocate: the share of the GPU's memory that vLLM takes."""
    vllm_url: MaybeAddress = ""
    """Of server: its address, without /v1."""
    vllm_tokens: int = Field(0, ge=0)
    """Length of an episode in tokens that vLLM has room for; 0: all that the model has. A server's --max-model-len."""

    @model_validator(mode="after")
    def _samples_where_it_is_told(self) -> "AgentParams":
        if (self.vllm == "server") != bool(self.vllm_url):
            raise ValueError("train.vllm_url is the address for train.vllm: server; set both or neither")
        if self.vllm_url.rstrip("/").endswith("/v1"):
            raise ValueError(f"train.vllm_url is the server's root; leave /v1 out (found {self.vllm_url})")
        unread = {"vllm_memory": ("colocate",), "vllm_tokens": ("colocate", "server")}
        for name in sorted(unread.keys() & self.model_fields_set):
            if self.vllm not in unread[name]:
                raise ValueError(f"train.vllm {self.vllm} does not read {name}; leave it out")
        if 0 < self.vllm_tokens <= self.max_tokens:
            raise ValueError(
                f"train.vllm_tokens {self.vllm_tokens} has no room for a prompt and train.max_tokens {self.max_tokens}"
            )
        return self

    @model_validator(mode="after")
    def _reads_all_that_is_set(self) -> "AgentParams":
        unread = sorted({"credit", "states_per_pass"} & self.model_fields_set)
        if unread:
            raise ValueError(f"train.method agent does not read {', '.join(unread)}; leave it out")
        if self.precision == "float16":
            raise ValueError(
                "train.method agent takes no float16, whose loss scale a resumed run would have lost; "
                "set train.precision: bfloat16"
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
        if self.vllm != "none":
            raise ValueError(
                "train.vllm takes no 4-bit base (TRL sends it merged weights of another shape); "
                "set train.quantization: none: LoRA in bfloat16"
            )
        return self
