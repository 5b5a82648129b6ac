"""Request bodies and their limits."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harr.builders.trained import conversation, finish_hop
from harr.errors import ParamsError, one_line
from harr.types import Question, Search

MAX_BYTES = 4 << 20
"""Maximum number of bytes in a body."""
MAX_QUERIES = 4096
"""Maximum number of queries in a Search-R1 request: a step's rollouts."""
MAX_PASSAGES = 1000
MAX_FOUND = 100_000
"""Maximum number of passages in an answer in Search-R1's protocol."""
Text = Annotated[str, Field(max_length=20_000)]
Count = Annotated[int, Field(ge=1, le=MAX_PASSAGES)]
Tower = Literal["champion", "frozen"]
"""The model that answers: the trained one, or the base encoder, which reads only the query."""


class HopBody(BaseModel):
    """What was asked and learnt before."""

    model_config = ConfigDict(extra="forbid")

    query: Text
    answer: Text = ""
    status: Literal["", "FOUND", "NOT_FOUND", "AMBIGUOUS"] = ""


class MessageBody(BaseModel):
    """A chat message, as sent to language models; of a list of parts only the texts are read."""

    role: Annotated[str, Field(max_length=40)]
    content: Text | Annotated[list[dict[str, Any]], Field(max_length=64)] | None = ""

    @property
    def text(self) -> str:
        """Return the message's text."""
        if isinstance(self.content, list):
            return " ".join(str(part.get("text", "")) for part in self.content)[:20_000]
        return self.content or ""


class SearchBody(BaseModel):
    """One search: a query of a question, or a chat whose last user message is the question."""

    model_config = ConfigDict(extra="forbid")

    question: Text = ""
    hops: Annotated[list[HopBody], Field(max_length=100)] = []
    messages: Annotated[list[MessageBody], Field(max_length=1000)] = []
    query: Text = ""
    k: Count | None = None
    thought: Text = ""
    exclude: Annotated[list[Text], Field(max_length=MAX_PASSAGES)] = []
    model: Tower = "champion"

    @model_validator(mode="after")
    def _asks(self) -> "SearchBody":
        if self.hops and self.messages:
            raise ValueError("hops and messages both give the history; send one of them")
        if self.messages and not any(message.role == "user" for message in self.messages):
            raise ValueError("no message is the user's")
        if not (self.question or self.query or self.messages):
            raise ValueError("nothing is asked; send a question, a query or messages")
        return self

    def search(self, *, statuses: bool) -> Search:
        """Return the search; ``statuses``: whether the model reads a hop's status."""
        last, hops = "", [(hop.query, hop.answer, str(hop.status)) for hop in self.hops]
        if self.messages:
            last, before = conversation([(message.role, message.text) for message in self.messages])
            hops = [(query, answer, "") for query, answer in before]
        question = self.question or last or self.query
        history = tuple(finish_hop(query, answer, status, statuses=statuses) for query, answer, status in hops)
        return Search(
            Question("", question),
            self.query or last or question,
            history,
            frozenset(self.exclude),
            k=self.k or 0,
            thought=self.thought,
        )


class RetrieveBody(BaseModel):
    """A request in Search-R1's protocol; SkyRL's server takes one ``query`` instead of the list."""

    queries: Annotated[list[Text], Field(max_length=MAX_QUERIES)] | None = None
    query: Text | None = None
    topk: Annotated[int, Field(ge=0, le=MAX_PASSAGES)] | None = None
    return_scores: bool = False

    @model_validator(mode="after")
    def _asks(self) -> "RetrieveBody":
        if (self.queries is None) == (self.query is None):
            raise ValueError("send either queries, a list, or query, a text")
        if len(self.queries or ()) * (self.topk or 0) > MAX_FOUND:
            raise ValueError(f"queries times topk is more than {MAX_FOUND:,}; send fewer at a time")
        return self


class EmbedBody(BaseModel):
    """Texts that become vectors: states and queries (``query``), or passages (``document``, the base encoder)."""

    model_config = ConfigDict(extra="forbid")

    inputs: Text | Annotated[list[Text], Field(max_length=1024)]
    tower: Literal["query", "document"] = "query"


Body = TypeVar("Body", bound=BaseModel)


def read_body(kind: type[Body], raw: bytes) -> Body:
    """Parse a request's body.

    Raises:
        ParamsError: it is invalid; one line says what is wrong, and where.
    """
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        raise ParamsError(refusal(error)) from None


def refusal(error: ValidationError) -> str:
    """Return the first fault of a body and its place, in one line."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"][:4])
    return one_line(f"{where}: {first['msg']}" if where else first["msg"], 300)
