"""Providers of sources outside our index: functions from a query and ``k`` to at most ``k`` passages.

A function raises ``ServiceUnavailable`` if the source may answer later; any other error is final.
:class:`harr.rag.sources.client.WebSource` does the rest: concurrent queries, deadline, retries, cache.
"""

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from harr.errors import HarrError, ParamsError, ServiceUnavailable, one_line
from harr.io.retry import is_transient
from harr.params.functions import function_of
from harr.params.servers import ServerParams
from harr.params.sources import ExaParams, FunctionSourceParams
from harr.types import Passage

EXA = ServerParams(
    name="exa",
    urls=("https://api.exa.ai",),
    key_variable="EXA_API_KEY",
    concurrency=16,
    timeout_seconds=15.0,
    deadline_seconds=15.0,
)
"""Exa's own service."""
SearchFn = Callable[[str, int], Sequence[Passage]]
OutsideParams = ExaParams | FunctionSourceParams
"""The sections of sources other than our own index."""


def open_provider(tool: str, section: OutsideParams) -> SearchFn:
    """Return the function of a source of params.yaml, without sending a request.

    Raises:
        ParamsError: no key, no package, or no such function.
    """
    match section:
        case ExaParams():
            return exa(tool, section)
        case FunctionSourceParams():
            shape = "takes a query and k and returns passages"
            return function_of(section.function, key=f"sources.{tool}.function", shape=shape, takes=2)
        case _:
            assert_never(section)


def exa(tool: str, section: ExaParams) -> SearchFn:
    """Return Exa's search, through its own client; a page becomes a passage, with its address as id.

    Raises:
        ParamsError: the environment variable with the key is not set, or package exa-py is missing.
    """
    server = section.server or EXA
    key = os.environ.get(server.key_variable, "")
    if not key:
        raise ParamsError(
            f"sources.{tool}: no key for Exa; set the environment variable {server.key_variable}, or name another in "
            f"an entry of section servers, and that in sources.{tool}.server"
        )
    try:
        from exa_py import Exa as Client
    except ImportError:
        raise ParamsError(f"sources.{tool}: kind exa needs package exa-py; pip install 'harr[web]'") from None
    client = Client(key, timeout=server.timeout_seconds, base_url=server.urls[0].rstrip("/"))
    options: dict[str, Any] = {"contents": {"text": {"max_characters": section.max_characters}}}
    options |= {"category": section.category} if section.category else {}

    def search(query: str, k: int) -> list[Passage]:
        try:
            results = client.search(query, num_results=k, **options)
        except OSError as error:  # all errors of requests are OSErrors
            reason = type(error).__name__ if key in str(error) else one_line(error)
            raise ServiceUnavailable(f"Exa does not answer ({reason})") from None
        except ValueError as error:
            raise _refusal(one_line(error, secret=key), server.key_variable) from None
        return [
            Passage(page.url, (page.text or "").strip()[: section.max_characters], page.title or "")
            for page in results.results[:k]
            if page.url
        ]

    return search


def _refusal(reason: str, key_variable: str) -> HarrError:
    """Return the error for a failed request of Exa's client, which gives the status code only in its text."""
    number = re.search(r"status code (\d{3})", reason)
    status = int(number[1]) if number else 0
    if is_transient(status):
        return ServiceUnavailable(f"Exa is overloaded or out of order ({reason})")
    if status in (401, 403):
        return ParamsError(f"Exa refuses the key in ${key_variable} ({reason})")
    return HarrError(f"Exa refuses the query ({reason})")


def passages_of(rows: Any, tool: str) -> list[Passage]:
    """Return passages from the rows of :func:`rows_of`."""
    return [Passage(row["id"], row["text"], row["title"], tool) for row in rows]


def rows_of(passages: Sequence[Passage]) -> list[dict[str, str]]:
    """Return passages as rows for a file."""
    return [{"id": passage.id, "title": passage.title, "text": passage.text} for passage in passages]
