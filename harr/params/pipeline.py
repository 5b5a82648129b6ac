"""Section ``pipeline`` of params.yaml: one class per RAG pipeline."""

import re
from typing import Literal

from pydantic import Field, model_validator

from harr.params.fields import Positive, Section

TAUGHT = ("General", "News", "Academy")
"""The tools of R-Search, which the small language model is taught to ask."""


class MultistepParams(Section):
    """A planner asks sub-queries, a reader answers each from K passages."""

    name: Literal["multistep"]
    max_hops: Positive = 5


class ReactParams(Section):
    """A tool-calling agent; its tool searches."""

    name: Literal["react"]
    max_searches: Positive = 5
    shows: Literal["answer", "passages"] = "answer"
    """What the tool says: a reader's short answer, or the passages, so that the conversation is one growing text."""


class SearchR1Params(Section):
    """One growing text with <think>, <search>, <information> and <answer> (Search-R1, arXiv 2503.09516)."""

    name: Literal["search_r1"]
    max_searches: Positive = 4
    template: Literal["plain", "chatml", "bare"] = "plain"
    """Instructions as they are, in Qwen's chat markup, or no instructions (a model that knows the format)."""


class RSearchParams(Section):
    """One text with <think>, a <search> graph, its <result> and an <answer> (R-Search, arXiv 2506.08352)."""

    name: Literal["r_search"]
    tools: tuple[str, ...] = TAUGHT
    """The sources that a search may ask, by name."""
    max_nodes: int = Field(8, ge=1, le=26)
    """Searches in a graph; their labels are single letters."""
    max_words: Positive = 10
    """Of a query, as the model writes it."""
    budget: int = Field(0, ge=0)
    """Searches that are made for a question; 0: all of its graph."""
    template: Literal["plain", "chatml", "bare"] = "plain"
    """As for search_r1."""

    @model_validator(mode="after")
    def _tools_have_names(self) -> "RSearchParams":
        named = all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", tool) for tool in self.tools)
        if not self.tools or not named or len(set(self.tools)) < len(self.tools):
            raise ValueError(f"tools {list(self.tools)} should be different words without blanks, at least one")
        return self


class LeReTPipelineParams(Section):
    """A query a hop, written by a model that sees what was found so far; no answer (LeReT, arXiv 2410.23214)."""

    name: Literal["leret"]
    hops: Positive = 2
    order: Literal["rank", "score"] = "rank"
    """Of all passages found: by their rank in their own search, or by the retriever's score, as published."""
    template: Literal["plain", "chatml", "chat", "bare"] = "plain"
    """As for search_r1; ``chat``: the model's own chat template."""
    max_tokens: int = Field(2048, ge=16)
    """Of a prompt without instructions and demonstrations; a longer one loses its last passages, whole ones."""
    few_shot_tokens: int = Field(0, ge=0)
    """Of a prompt with demonstrations; a longer one loses the last of these. 0: as max_tokens."""


class PickParams(Section):
    """Passages are picked one after the other; no LLM, unless one reads them at the end."""

    name: Literal["pick"]
    picks: Positive = 2
    depth: int = Field(0, ge=0)
    """Length of the final ranking; the last pick fills it up. 0: as many as picks."""
    reader: bool = False
    """The generator answers from the picks, so that rewards of answers apply."""
