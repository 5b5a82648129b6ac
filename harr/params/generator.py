"""Section ``generator`` of params.yaml: one class per kind of language model."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from harr.params.fields import (
    Dotted,
    MaybePathOrName,
    PathOrName,
    Plain,
    Positive,
    Section,
    is_dotted,
)
from harr.params.servers import ServerName
from harr.params.train_facts import LoraParams

TemplateSettings = dict[Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], Any]
"""Variables of a chat template by their names."""


class GeneratorFacts(Section):
    """What the rules in ``harr/params/rules.py`` know about a kind of language model."""

    trainable: ClassVar[bool] = False
    """Whether its weights are here, so that it can learn."""
    templated: ClassVar[bool] = False
    """Whether its own chat template can be read here."""
    resolves: ClassVar[bool] = False
    """Whether it says which names the pronouns in its queries stand for."""

    @property
    def taught(self) -> bool:
        """Return whether stage generator teaches it by examples, before anything else trains it."""
        return False

    @property
    def traces_of(self) -> tuple[str, str]:
        """Return pipeline and template of the examples that a function makes for it; empty: none does."""
        return "", ""


class ServedParams(GeneratorFacts):
    """Any OpenAI-compatible endpoint."""

    kind: Literal["server"]
    """Selects an OpenAI-compatible server."""
    server: ServerName
    """Server, by its name in section servers."""
    model: PathOrName
    """Name of the model, as the server knows it."""
    temperature: float = Field(0.7, ge=0)
    """Sampling temperature; 0 means the most likely tokens."""
    max_tokens: Positive = 512
    """Maximum length of a completion in tokens."""
    extra_body: Plain = Field({})
    """Fields sent with every request, e.g. ``{chat_template_kwargs: {enable_thinking: false}}`` for vLLM."""
    tokenizer: MaybePathOrName = ""
    """Folder or cached hub name of the model's tokenizer, whose chat template pipeline.template chat needs."""


class SampledParams(GeneratorFacts):
    """Parameters of all causal language models in this process."""

    trainable: ClassVar[bool] = True
    temperature: float = Field(0.0, ge=0)
    """Sampling temperature; 0 means the most likely tokens."""
    max_tokens: Positive = 256
    """Maximum length of a completion in tokens."""
    batch_size: Positive = 64
    """Number of completions that are written together; halved if the GPU is full."""


GOLD = "gold"
"""The demonstrations made from the gold of training questions."""


class WarmstartParams(Section):
    """Demonstrations on which stage ``generator`` trains the model before it plays (supervised, TRL)."""

    demonstrations: PathOrName
    """File of demonstrations: JSON lines ``{"messages": [...]}`` or ``{"pieces": [[text, learnt], ...]}``
    (``harr/generator/demonstrations.py``); the word ``gold``: what the reader of pipeline pick should answer to the
    training questions from their gold passages and from wrong ones; or a function ``package.module:name`` that makes
    traces of search_r1, e.g. ``harr_encyclopaedia.traces:make_traces``."""
    traces: Positive = 2000
    """Number of traces that the function makes."""
    template: Literal["plain", "chatml", "chat", "bare"] = "plain"
    """Template of the traces that the function makes, the same as the pipeline's."""
    epochs: Positive = 3
    """Number of passes over the demonstrations."""
    steps: int = Field(0, ge=0)
    """Number of updates; 0 means as many as the epochs take."""
    learning_rate: float = Field(1e-4, gt=0)
    """Learning rate of AdamW."""
    rows_per_step: Positive = 16
    """Number of demonstrations per update."""
    rows_per_pass: Positive = 4
    """Number of demonstrations per forward pass; gradients accumulate over an update."""
    max_length: int = Field(2560, ge=8)
    """Maximum length of a demonstration in tokens; longer ones are left out and counted."""
    gradient_checkpointing: bool = False
    """Whether activations are recomputed in the backward pass, which takes less memory and more time."""
    lora: LoraParams | None = LoraParams(rank=16, alpha=16)
    """Adapter that learns and is merged at the end; with null all weights are trained."""

    @model_validator(mode="after")
    def _passes_are_whole(self) -> "WarmstartParams":
        if self.rows_per_step % self.rows_per_pass:
            raise ValueError(
                f"{self.rows_per_step} demonstrations a step do not make whole passes of {self.rows_per_pass}; "
                "set generator.warmstart.rows_per_pass to a divisor"
            )
        return self


class LocalParams(SampledParams):
    """A causal language model in this process."""

    templated: ClassVar[bool] = True
    kind: Literal["local"]
    """Selects a language model in this process."""
    model: PathOrName
    """Folder or hub name of the model."""
    chat_template_kwargs: TemplateSettings = Field({})
    """Variables of the model's chat template, e.g. ``{enable_thinking: false}``; a trained model keeps them."""
    warmstart: WarmstartParams | None = None
    """Demonstrations that it learns before it plays; with null it plays untaught."""

    @property
    def taught(self) -> bool:
        """Return whether there are demonstrations."""
        return self.warmstart is not None

    @property
    def traces_of(self) -> tuple[str, str]:
        """Return Search-R1 and the template, if a function makes the demonstrations."""
        made = self.warmstart and is_dotted(self.warmstart.demonstrations)
        return ("search_r1", self.warmstart.template) if self.warmstart and made else ("", "")


class FunctionGeneratorParams(GeneratorFacts):
    """A player from another package that writes instead of a language model."""

    resolves: ClassVar[bool] = True
    kind: Literal["function"]
    """Selects a player of another package."""
    function: Dotted
    """Function or class that returns the player (``harr.types.Generator``), as ``package.module:name``."""
    settings: Plain = Field({})
    """Its keyword arguments."""


class TrainedParams(SampledParams):
    """A causal language model that a function of another package trains in stage ``generator``."""

    kind: Literal["trained"]
    """Selects a model that another package trains."""
    function: Dotted
    """Function that trains it, ``train(params, out, work, log)``, as ``package.module:name``."""
    settings: Plain = Field({})
    """The function's own parameters."""
    max_tokens: Positive = 64
    """Maximum length of a completion in tokens."""
    batch_size: Positive = 32
    """Number of completions that are written together; halved if the GPU is full."""

    @property
    def taught(self) -> bool:
        """Return True: the function teaches it."""
        return True


def _is_untaught(section: Any) -> Any:
    if section.taught:
        raise ValueError("warmstart is for section generator alone; leave it out")
    return section


Untaught = AfterValidator(_is_untaught)
"""A language model that grades or reads, which no stage trains."""


class NoGeneratorParams(GeneratorFacts):
    """No language model, for a pipeline that needs none."""

    kind: Literal["none"]
    """Selects no language model."""


GeneratorParams = Annotated[
    ServedParams | TrainedParams | LocalParams | FunctionGeneratorParams | NoGeneratorParams,
    Field(discriminator="kind"),
]
