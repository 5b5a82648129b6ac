"""Section ``servers`` of params.yaml: address and time limits of each server. Other sections name one of them."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from harr.params.fields import Address, NonEmpty, Positive, Section, Variable


class ServerParams(Section):
    """A server, or several that serve the same."""

    name: SkipJsonSchema[str] = ""
    """Its name in section ``servers``, filled in automatically."""
    urls: NonEmpty[Address]
    """Addresses with their path, e.g. http://127.0.0.1:8000/v1. If there are several, the least loaded is asked, and
    one that does not answer is skipped for a while."""
    key_variable: Variable = "OPENAI_API_KEY"
    """Name of the environment variable with the key, which may be unset for a local server."""
    concurrency: Positive = 128
    """Maximum number of concurrent requests; with vLLM, as many as there are episodes in a batch."""
    timeout_seconds: float = Field(60.0, gt=0)
    """Number of seconds after which an attempt is abandoned."""
    deadline_seconds: float = Field(300.0, gt=0)
    """Number of seconds after which a request is abandoned, with all its attempts; a server may restart meanwhile. A
    server that never answered, and at whose address nothing listens, is abandoned after 5."""

    @model_validator(mode="before")
    @classmethod
    def _is_known(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("names no entry of section servers; add it there, e.g. `servers: {NAME: {urls: [...]}}`")
        return value

    @property
    def place(self) -> str:
        """Return its place in params.yaml.

        >>> ServerParams(name="qwen", urls=["http://127.0.0.1:8000/v1"]).place
        'servers.qwen'
        """
        return f"servers.{self.name}"


ServerName = Annotated[ServerParams, WithJsonSchema({"type": "string"})]
"""A server by its name, which :class:`harr.params.Params` replaces with the entry."""


def _has_one_address(server: ServerParams) -> ServerParams:
    if len(server.urls) > 1:
        raise ValueError(f"takes one address; {server.place}.urls has {len(server.urls)}, leave the others out")
    return server


OneServer = Annotated[ServerName, AfterValidator(_has_one_address)]
"""A server with one address."""


def resolve_servers(values: Any, servers: Mapping[str, Any]) -> Any:
    """Return values of params.yaml in which every ``server: NAME`` is the entry of that name, at any depth.

    >>> resolve_servers({"generator": {"server": "qwen"}}, {"qwen": {"urls": ["http://h/v1"]}})
    {'generator': {'server': {'urls': ['http://h/v1'], 'name': 'qwen'}}}
    """
    if isinstance(values, list | tuple):
        return [resolve_servers(value, servers) for value in values]
    if not isinstance(values, dict):
        return values
    return {
        key: {**servers[value], "name": value}
        if key == "server" and isinstance(value, str) and isinstance(servers.get(value), dict)
        else resolve_servers(value, servers)
        for key, value in values.items()
    }
