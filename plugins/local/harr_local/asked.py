"""Checks of the servers that params.yaml names: each is asked once, with its key, and has two seconds to answer."""

import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

import httpx

from flows.finding import Finding, fail, ok, warn
from harr.errors import bare, one_line
from harr.params import Params
from harr.services.failures import connection_remedy

SECONDS = 2.0


@dataclass(frozen=True)
class Server:
    """A server named in a section of params.yaml: its addresses, its expected model, and its key's variable."""

    section: str
    urls: tuple[str, ...]
    model: str
    variable: str


def check_model_server(server: Server, address: str, environment: Mapping[str, str]) -> list[Finding]:
    """Check whether a server answers and, if it should have a model, whether it accepts the key and has the model.

    One without a model is a source of passages; only whether it answers is checked, as a request would be a search.
    """
    where, section, variable, model = bare(address), server.section, server.variable, server.model
    key = environment.get(variable, "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = httpx.get(f"{address.rstrip('/')}/models" if model else address, headers=headers, timeout=SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        fix = connection_remedy(str(error), address, "its address in section servers")
        return [fail(section, f"no server answers at {where} ({one_line(error)})", fix)]
    if not model:
        return [ok(section, f"answers at {where}")]
    if answer.status_code in (401, 403):
        state = "the key was refused" if key else f"${variable} is unset"
        return [fail(section, f"{where} answers {answer.status_code}: {state}", f"export {variable}=<its key>")]
    try:
        names = [entry["id"] for entry in answer.json()["data"]]
    except (ValueError, KeyError, TypeError):
        message = f"{where} answers {answer.status_code}, and names no models"
        return [warn(section, message, "see its log, or correct its address in section servers")]
    if names and model not in names:
        fix = f"set {section}.model to one of these, or serve {model}"
        return [fail(section, f"{where} serves {', '.join(map(str, names[:3]))}, not {model}", fix)]
    return [ok(section, f"answers at {where}")]


def check_milvus(address: str) -> list[Finding]:
    """Check whether a Milvus server's port is open; whether it has the collection is checked on opening."""
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 19530)
        socket.create_connection((parts.hostname or "", port), timeout=SECONDS).close()
    except (OSError, ValueError) as error:
        fix = connection_remedy(str(error), address, "index.uri")
        return [fail("Milvus", f"nobody listens at {bare(address)} ({error})", fix)]
    return [ok("Milvus", f"listens at {bare(address)}")]


def read_plugins(params: Params) -> Params:
    """Return the parameters with the sections of installed plug-ins read as their classes (docs/extend.md).

    Raises:
        ParamsError: a section has a wrong key or value.
    """
    classes = {entry.name: entry for entry in metadata.entry_points(group="harr.sections")}
    sections = {name: params.of_plugin(name, classes[name].load()) for name in params.plugins if name in classes}
    return params.model_copy(update={"plugins": params.plugins | sections})


def servers(params: Params) -> Iterator[Server]:
    """Yield every server that params.yaml names, wherever it is: a section with ``server``.

    >>> from harr.params.reward import RerankerParams
    >>> ranker = RerankerParams(server={"urls": ["http://127.0.0.1:8004/v1"]}, model="m")
    >>> [server.section for server in servers(Params.model_construct(retriever={"reranker": ranker}))]
    ['retriever.reranker']
    """
    for name, part in _sections("", params):
        if server := getattr(part, "server", None):
            yield Server(name, server.urls, getattr(part, "model", ""), server.key_variable)


def _sections(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a section and all sections in it, by their dotted names."""
    if isinstance(value, Mapping):
        parts: Iterable[tuple[str, Any]] = value.items()
    elif isinstance(value, tuple):
        parts = ((str(place), part) for place, part in enumerate(value))
    elif hasattr(type(value), "model_fields"):
        yield name, value
        parts = vars(value).items()
    else:
        return
    for key, part in parts:
        yield from _sections(f"{name}.{key}" if name else str(key), part)
