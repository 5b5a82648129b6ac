"""params.yaml as types: one class per section, closed, so that a typo is an error and not a default.

A file holds a section (``harr/params/train.py``: section ``train``). Only flows, tasks and ``harr.build`` see
:class:`Params`; the rest of the library takes the section it needs or plain values. Nothing else imports pydantic.
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from harr.arms import ARMS, FULL
from harr.errors import ParamsError
from harr.io.yaml_file import read_yaml
from harr.params.download import DatasetParams
from harr.params.embed import EmbedParams, EncoderParams, HereParams, RayParams, ThreadsParams
from harr.params.evaluate import EvaluateParams, LengthsParams
from harr.params.faults import describe_fault
from harr.params.fields import Section, Seed
from harr.params.filter import FilterParams
from harr.params.generator import (
    LocalParams,
    NoGeneratorParams,
    ScriptedParams,
    ServerParams,
    SmallLMParams,
    WarmstartParams,
)
from harr.params.index import IndexParams
from harr.params.pipeline import (
    TAUGHT,
    LeReTPipelineParams,
    MultistepParams,
    PickParams,
    ReactParams,
    RSearchParams,
    SearchR1Params,
)
from harr.params.retriever import RetrieverParams
from harr.params.reward import RewardParams, metric_name
from harr.params.rules import check_search
from harr.params.sources import SourceParams
from harr.params.tracking import MergeParams, TrackingParams
from harr.params.train import AgentParams, GRPOParams, LeReTParams, PPOParams, PQNParams


class Params(Section):
    """All of params.yaml."""

    seed: Seed = 0
    download: DatasetParams
    encoder: EncoderParams = EncoderParams()
    embed: EmbedParams = EmbedParams()
    runner: Annotated[HereParams | ThreadsParams | RayParams, Field(discriminator="kind")] = HereParams()
    """Where the shards of stage embed are made. No stage depends on it: the bytes are the same everywhere."""
    index: IndexParams = IndexParams()
    retriever: RetrieverParams = RetrieverParams()
    sources: dict[str, SourceParams] = Field({})
    """Where a pipeline with tools searches, by the name of the tool."""
    pipeline: Annotated[
        MultistepParams | ReactParams | SearchR1Params | RSearchParams | PickParams | LeReTPipelineParams,
        Field(discriminator="name"),
    ]
    generator: Annotated[
        ScriptedParams | ServerParams | LocalParams | SmallLMParams | WarmstartParams | NoGeneratorParams,
        Field(discriminator="kind"),
    ]
    reward: RewardParams = RewardParams()
    filter: FilterParams = FilterParams()
    train: Annotated[GRPOParams | PPOParams | PQNParams | AgentParams | LeReTParams, Field(discriminator="method")]
    evaluate: EvaluateParams = EvaluateParams()
    lengths: LengthsParams = LengthsParams()
    merge: MergeParams = MergeParams()
    tracking: TrackingParams = TrackingParams()

    @model_validator(mode="after")
    def _sections_fit(self) -> "Params":
        pipeline, writer = self.pipeline.name, self.generator.kind
        silent = isinstance(self.pipeline, PickParams) and not self.pipeline.reader
        if silent != (writer == "none"):
            raise ValueError(
                f"pipeline {pipeline} and generator {writer}: a pick without reader needs kind none, "
                "the others need a generator"
            )
        if pipeline in ("react", "r_search", "pick", "leret") and writer == "scripted":
            raise ValueError("the scripted generator plays multistep and search_r1 only; use a server or a local model")
        if isinstance(self.generator, SmallLMParams) and pipeline != self.generator.plays:
            raise ValueError(
                f"the small language model plays {self.generator.plays}, not {pipeline}; set generator.plays and "
                "pipeline.name to the same"
            )
        if (
            isinstance(self.generator, SmallLMParams)
            and (template := getattr(self.pipeline, "template", "bare")) != "bare"
        ):
            raise ValueError(
                f"the small language model was never shown the instructions of pipeline.template {template}; set bare"
            )
        if isinstance(self.generator, WarmstartParams) and not self.generator.demonstrations:
            template = self.generator.template
            if (pipeline, getattr(self.pipeline, "template", "")) != ("search_r1", template):
                raise ValueError(
                    "generator.demonstrations is empty: traces are made for pipeline search_r1 with template "
                    f"{template}; set pipeline so, or name a file of demonstrations"
                )
        if self.download.dataset == "medquad":
            asked = (self.download.tokenizer, self.download.chunk_tokens + 2)
            if asked[0] != self.encoder.model or asked[1] > self.encoder.max_tokens:
                raise ValueError(
                    "medquad is cut by the tokens of its encoder: download.tokenizer should be encoder.model "
                    f"({self.encoder.model}), and download.chunk_tokens at most {self.encoder.max_tokens - 2}"
                )
        check_search(self.retriever, self.evaluate, full_text=self.index.full_text)
        arms = self.evaluate.arm_table
        if self.train.method != "pqn":
            untold = [name for name, arm in arms.items() if "positions" in arm.overrides]
            if self.retriever.positions != "none" or untold:
                raise ValueError("retriever.positions and the arm no_positions are for train.method pqn")
        elif pipeline != "pick" or self.retriever.candidates != "question" or self.evaluate.candidates != ("question",):
            raise ValueError(
                "train.method pqn plays pipeline pick; set retriever.candidates: question, "
                "evaluate.candidates: [question]"
            )
        elif any(arm.method or (arm.trained and not arm.history) for arm in arms.values()):
            raise ValueError("evaluate.arms rl_no_history and infonce have no pqn; leave them out")
        return self

    @model_validator(mode="after")
    def _sources_are_asked(self) -> "Params":
        names_tools = isinstance(self.pipeline, RSearchParams)
        tools = set(self.pipeline.tools if isinstance(self.pipeline, RSearchParams) else self.sources)
        if names_tools and isinstance(self.generator, SmallLMParams) and (unknown := {*TAUGHT} - tools):
            raise ValueError(f"the small language model asks {', '.join(TAUGHT)}; add {min(unknown)} to pipeline.tools")
        if not self.sources:
            return self
        if lacking := tools - set(self.sources):
            raise ValueError(f"pipeline.tools {min(lacking)} has no source; add sources.{min(lacking)}")
        if unasked := set(self.sources) - tools:
            raise ValueError(f"sources.{min(unasked)} is asked by no tool; leave it out, or add it to pipeline.tools")
        if self.train.method != "agent":
            raise ValueError(
                f"train.method {self.train.method} learns from what our own index finds, and sources do not learn; "
                "leave sources out, or set train.method: agent"
            )
        if "question" in (self.retriever.candidates, *self.evaluate.candidates):
            raise ValueError("sources are searched as they are, not the passages given; set candidates: corpus")
        return self

    @model_validator(mode="after")
    def _who_learns_is_compared(self) -> "Params":
        writer, arms = self.generator.kind, set(self.evaluate.arms)
        method = self.train.method
        if isinstance(self.pipeline, LeReTPipelineParams) != isinstance(self.train, LeReTParams):
            raise ValueError(
                f"pipeline {self.pipeline.name} and train.method {method}: pipeline leret goes with method leret only; "
                "set both or neither"
            )
        if not isinstance(self.train, AgentParams | LeReTParams):
            if self.retriever.late_interaction:
                raise ValueError(
                    "retriever.late_interaction is for train.method agent or leret: a retriever that learns ranks by "
                    "its own vectors; leave it out"
                )
            if began := sorted(name for name in arms if ARMS[name].learner == "writer"):
                raise ValueError(
                    f"evaluate.arms {began[0]} is for train.method agent or leret, where the language model learns"
                )
            return self
        if writer not in ("small_lm", "warmstart", "local"):
            raise ValueError(
                f"train.method {method} trains the language model; generator.kind is {writer}: use small_lm, warmstart "
                "or local"
            )
        played = {"temperature": 0.0, "max_tokens": self.train.max_tokens}
        for name in sorted(played.keys() & self.generator.model_fields_set):
            if (given := getattr(self.generator, name)) != played[name]:
                raise ValueError(
                    f"generator.{name} {given} is not read: train.method {method} writes completions of "
                    f"train.max_tokens {self.train.max_tokens}, in evaluation its most likely tokens; leave "
                    f"generator.{name} out"
                )
        if method == "agent" and self.pipeline.name not in ("search_r1", "r_search", "react"):
            raise ValueError(
                f"train.method agent plays search_r1, r_search or react, not {self.pipeline.name}; set pipeline.name"
            )
        if isinstance(self.pipeline, ReactParams) and self.pipeline.shows != "passages":
            raise ValueError("train.method agent trains on one growing text; set pipeline.shows: passages")
        known: tuple[str, ...] = ("base", "full") if writer == "local" else ("base", "warmstart", "full")
        known = ("base", "few_shot", "few_shot_all", "sft", "full") if method == "leret" else known
        if unknown := sorted(arms - set(known)):
            raise ValueError(
                f"evaluate.arms {unknown[0]} does not go with train.method {method} and generator.kind {writer}; "
                f"choose from {', '.join(known)}"
            )
        if (inside := [name for name in arms if ARMS[name].inside]) and FULL not in arms:
            raise ValueError(f"the arm {inside[0]} is what full was trained from; add full to evaluate.arms")
        if self.evaluate.pass_at:
            raise ValueError(
                f"evaluate.pass_at samples a retriever that learns; leave it out for train.method {method}"
            )
        return self

    @model_validator(mode="after")
    def _the_filter_samples_what_learns(self) -> "Params":
        given = {"temperature", "max_tokens"} & self.filter.model_fields_set
        if isinstance(self.train, LeReTParams):
            if unread := {"temperature", "keep", "group_size"} & self.filter.model_fields_set:
                raise ValueError(f"train.method leret does not read filter.{min(unread)}; see filter.preferences")
            if self.filter.max_tokens != self.train.max_tokens:
                raise ValueError(
                    f"the filter tries queries of as many tokens as evaluation: filter.max_tokens "
                    f"{self.filter.max_tokens}, train.max_tokens {self.train.max_tokens}; set both alike"
                )
            return self
        if self.filter.preferences:
            raise ValueError("filter.preferences is for train.method leret; leave it out")
        if self.evaluate.reader:
            raise ValueError("evaluate.reader is for train.method leret, whose pipeline does not answer; leave it out")
        if not isinstance(self.train, AgentParams):
            if given:
                raise ValueError(f"filter.{min(given)} is for train.method agent; leave it out")
            return self
        sampled = {name: getattr(self.filter, name) for name in ("temperature", "max_tokens")}
        learning = {name: getattr(self.train, name) for name in sampled}
        if self.filter.keep == "disagreeing" and sampled != learning:
            raise ValueError(
                f"the filter samples as training does: filter has {sampled}, train {learning}; set both alike"
            )
        return self

    @model_validator(mode="after")
    def _groups_can_be_mixed(self) -> "Params":
        mix, method = self.reward.mix, self.train.method
        if (mix != "weighted" or self.reward.filter_by_mean) and method in ("ppo", "pqn"):
            what = "reward.filter_by_mean" if mix == "weighted" else f"reward.mix {mix}"
            raise ValueError(f"{what} compares the rollouts of a group, which {method} does not; use train.method grpo")
        if mix != "weighted" and getattr(self.train, "credit", "episode") == "step":
            raise ValueError(f"reward.mix {mix} mixes rewards of whole episodes; set train.credit: episode")
        return self

    @property
    def writer_learns(self) -> bool:
        """Whether the language model is what learns, and the retriever stays as it is."""
        return isinstance(self.train, AgentParams | LeReTParams)

    @property
    def baseline(self) -> str:
        """The arm that `full` is compared with: what it was before training."""
        if not self.writer_learns:
            return "frozen"
        return "base" if self.generator.kind == "local" or isinstance(self.train, LeReTParams) else "warmstart"

    @property
    def headline(self) -> str:
        """The metric that decides a promotion: the first term of the reward."""
        return metric_name(next(iter(self.reward.terms)), judged=self.reward.judge is not None)

    @classmethod
    def load(cls, path: Path = Path("params.yaml")) -> "Params":
        """Read and check a parameter file.

        Raises:
            ParamsError: the file is missing, is not YAML, or holds a wrong key or value; one line
                per fault with the key's full name and, for an unknown key, the nearest known one.
        """
        values = read_yaml(path, mend="copy one of recipes/*.yaml there")
        if not isinstance(values, dict):
            raise ParamsError(f"{path}: expected sections such as `train:`, found {type(values).__name__}")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ParamsError("\n".join(f"{path}: {describe_fault(fault, cls)}" for fault in error.errors())) from None
