"""Section ``sources`` of params.yaml: one class per kind of source."""

from typing import Annotated, Literal

from pydantic import Field

from harr.params.fields import Dotted, Positive, Section
from harr.params.servers import OneServer


class MilvusParams(Section):
    """Our own passages: the best ``retriever.k``, searched as ``retriever.search`` says."""

    kind: Literal["milvus"]
    """Selects our own index."""
    collection: Literal["source", "corpus"] = "source"
    """Passages that are searched: those whose source has the name of the tool, or the whole corpus."""


class WebParams(Section):
    """Parameters of all sources that are asked during play, other than our own."""

    num_results: Positive = 2
    """Number of passages that a search returns."""


class ExaParams(WebParams):
    """The web, through Exa's search (`pip install 'harr[web]'`)."""

    kind: Literal["exa"]
    """Selects Exa's search."""
    server: OneServer | None = None
    """Another address or key of the service, by its name in section servers; with null, Exa's own address, and the key
    in EXA_API_KEY."""
    category: str = ""
    """Category of pages, such as ``news`` or ``publication``; if empty, the whole web is searched."""
    max_characters: Positive = 500
    """Maximum length of a page's text in characters."""


class FunctionSourceParams(WebParams):
    """A source from another package: ``function(query, k)`` returns at most k passages (docs/sources.md)."""

    kind: Literal["function"]
    """Selects a function of another package."""
    function: Dotted
    """Function that takes a query and k and returns passages, as ``package.module:function``."""
    concurrency: Positive = 16
    """Maximum number of concurrent queries."""
    deadline_seconds: float = Field(15.0, gt=0)
    """Number of seconds after which a query is abandoned, with all its attempts."""


SourceParams = Annotated[MilvusParams | ExaParams | FunctionSourceParams, Field(discriminator="kind")]
