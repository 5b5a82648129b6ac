"""Section ``sources`` of params.yaml: one class per kind of source."""

from typing import Annotated, Literal

from pydantic import Field

from harr.params.fields import Address, MaybeAddress, MaybePathOrName, PathOrName, Positive, Section


class MilvusParams(Section):
    """Our own passages; searched as ``retriever.search`` says, ``retriever.k`` of them."""

    kind: Literal["milvus"]
    collection: Literal["source", "corpus"] = "source"
    """The passages whose source has the name of the tool, or the whole corpus."""


class WebParams(Section):
    """What every source has that is asked query by query."""

    num_results: Positive = 2
    """Passages a search returns."""
    concurrency: Positive = 16
    """Queries at a time."""
    deadline_seconds: float = Field(15.0, gt=0)
    """One query with all its attempts."""
    record: MaybePathOrName = ""
    """A file that every answer is also written to, for a source of kind cassette."""


class ExaParams(WebParams):
    """The web, through Exa's search (`pip install 'harr[web]'`)."""

    kind: Literal["exa"]
    key_variable: str = "EXA_API_KEY"
    """Name of the environment variable with the key."""
    base_url: MaybeAddress = ""
    """Empty: that of Exa's own client."""
    category: str = ""
    """Such as ``news`` or ``publication``; empty: all of the web."""
    max_characters: Positive = 500
    """So much of a page's text."""


class FunctionSourceParams(WebParams):
    """A source of your own: ``function(query, k)`` returns at most k passages (docs/sources.md)."""

    kind: Literal["function"]
    function: str
    """``package.module:function``."""


class RetrieveParams(WebParams):
    """A retrieval server as Search-R1 runs it: all queries that wait are one ``POST`` (docs/sources.md)."""

    kind: Literal["retrieve"]
    url: Address
    """Address of the server's search, such as ``http://127.0.0.1:8000/retrieve``."""
    num_results: Positive = 3
    """Passages a search returns."""


class CassetteParams(Section):
    """Answers that were recorded; a query that was not has none."""

    kind: Literal["cassette"]
    path: PathOrName
    """JSON lines ``{tool, query, passages: [{id, title, text}]}``."""
    num_results: Positive = 2


SourceParams = Annotated[
    MilvusParams | ExaParams | FunctionSourceParams | RetrieveParams | CassetteParams, Field(discriminator="kind")
]
