"""Section ``pipeline`` of params.yaml: one class per RAG pipeline."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from harr.params.fields import Dotted, Plain, Positive, Section


class PipelineFacts(Section):
    """What the rules in ``harr/params/rules.py`` know about a pipeline."""

    foreign: ClassVar[bool] = False
    """Whether it comes from another package, so that nothing is known about what it needs."""
    methods: ClassVar[tuple[str, ...]] = ()
    """The only training methods that play it; empty: any."""
    read_later: ClassVar[bool] = False
    """Whether it gives no answer, and evaluate.reader answers from what it found."""
    writes_queries: ClassVar[bool] = True
    """Whether every hop has its own query and an answer; if not, all searches ask the question."""
    thinks: ClassVar[bool] = True
    """Whether a search comes with what the agent wrote before it (``Search.thought``)."""
    resolves: ClassVar[bool] = False
    """Whether its queries can come with the names that their pronouns stand for."""

    @property
    def converses(self) -> bool:
        """Return whether it is a conversation, all turns of which can be trained on."""
        return False

    @property
    def tells_status(self) -> bool:
        """Return whether a reader says of every hop whether it was answered (``Hop.status``)."""
        return False

    @property
    def needs_generator(self) -> bool:
        """Return whether a language model writes its queries or answers."""
        return True


ReaderSees = Literal["sub_query", "history"]
"""What a reader sees besides the passages."""


class MultistepParams(PipelineFacts):
    """A planner asks sub-queries, a reader answers each from K passages."""

    thinks: ClassVar[bool] = False
    resolves: ClassVar[bool] = True
    name: Literal["multistep"]
    """Selects the planner with a reader."""
    max_hops: Positive = 5
    """Maximum number of sub-queries per question."""
    reader_sees: ReaderSees = "sub_query"
    """What the reader sees besides the passages: the sub-query alone, as published, or also the question and the
    history, which tell it whom "she" means."""

    @property
    def tells_status(self) -> bool:
        """Return True: the reader always does."""
        return True


class ReactParams(PipelineFacts):
    """A tool-calling agent; its tool searches."""

    name: Literal["react"]
    """Selects the tool-calling agent."""
    max_searches: Positive = 5
    """Maximum number of searches per question."""
    shows: Literal["answer", "passages"] = "answer"
    """What the tool returns: a reader's short answer, or the passages, so that the conversation is one growing text."""
    reader_sees: ReaderSees = "sub_query"
    """What the reader sees besides the passages (shows: answer): the query alone, as published, or also the question
    and the history."""

    @property
    def converses(self) -> bool:
        """Return whether the agent itself reads the passages."""
        return self.shows == "passages"

    @property
    def tells_status(self) -> bool:
        """Return whether there is a reader."""
        return self.shows == "answer"


class SearchR1Params(PipelineFacts):
    """One growing text with <think>, <search>, <information> and <answer> (Search-R1, arXiv 2503.09516)."""

    name: Literal["search_r1"]
    """Selects Search-R1's format."""
    max_searches: Positive = 4
    """Maximum number of searches per question."""
    template: Literal["plain", "chatml", "chat", "bare"] = "plain"
    """Form of the prompt: instructions in plain text, in Qwen's chat markup, in the model's own chat template, or none
    (for a model that knows the format)."""


class RSearchParams(PipelineFacts):
    """One text with <think>, a <search> graph, each <result>, what was <found>, and an <answer> (arXiv 2506.08352)."""

    name: Literal["r_search"]
    """Selects R-Search's format."""
    tools: tuple[str, ...] = ("General", "News", "Academy")
    """Names of the sources that a search may ask."""
    max_nodes: int = Field(8, ge=1, le=26)
    """Maximum number of searches in a graph, whose labels are single letters."""
    max_words: Positive = 10
    """Maximum number of words in a query, as the model writes it."""
    template: Literal["plain", "chatml", "chat", "bare"] = "plain"
    """Form of the prompt: instructions in plain text, in Qwen's chat markup, in the model's own chat template, or none
    (for a model that knows the format)."""

    @model_validator(mode="after")
    def _tools_have_names(self) -> "RSearchParams":
        valid = all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", tool) for tool in self.tools)
        if not self.tools or not valid or len(set(self.tools)) < len(self.tools):
            raise ValueError(f"tools {list(self.tools)} should be different words without blanks, at least one")
        return self


class LeReTPipelineParams(PipelineFacts):
    """One query per hop, written by a model that sees what was found so far; no answer (LeReT, arXiv 2410.23214)."""

    methods: ClassVar[tuple[str, ...]] = ("leret",)
    read_later: ClassVar[bool] = True
    name: Literal["leret"]
    """Selects LeReT's queries."""
    hops: Positive = 2
    """Number of hops, each with one query."""
    order: Literal["rank", "score"] = "rank"
    """Order of all passages found: by their rank in their own search, or by the retriever's score, as published."""
    template: Literal["plain", "chatml", "chat", "bare"] = "plain"
    """Form of the prompt: instructions in plain text, in Qwen's chat markup, in the model's own chat template, or none
    (for a model that knows the format)."""
    max_tokens: int = Field(2048, ge=16)
    """Maximum length in tokens of a prompt without instructions and demonstrations; a longer one loses whole passages
    at its end."""
    few_shot_tokens: int = Field(0, ge=0)
    """Maximum length in tokens of a prompt with demonstrations, which are dropped from the end until it fits; 0 means
    max_tokens."""


class PickParams(PipelineFacts):
    """Passages are picked one by one; no language model, unless one reads them at the end."""

    writes_queries: ClassVar[bool] = False
    thinks: ClassVar[bool] = False
    name: Literal["pick"]
    """Selects picking without queries."""
    picks: Positive = 2
    """Number of passages picked per question."""
    depth: int = Field(0, ge=0)
    """Length of the final ranking, which the last pick fills up; 0 means as many as picks."""
    reader: bool = False
    """Whether the generator answers from the picks, so that rewards of answers apply."""

    @property
    def needs_generator(self) -> bool:
        """Return whether a reader answers from the picks."""
        return self.reader


class FunctionPipelineParams(PipelineFacts):
    """A pipeline from another package."""

    foreign: ClassVar[bool] = True
    name: Literal["function"]
    """Selects a function of another package."""
    function: Dotted
    """Generator function that plays a question, as ``package.module:function``."""
    settings: Plain = Field({})
    """Keyword arguments of the function."""


PipelineParams = Annotated[
    MultistepParams
    | ReactParams
    | SearchR1Params
    | RSearchParams
    | PickParams
    | LeReTPipelineParams
    | FunctionPipelineParams,
    Field(discriminator="name"),
]
