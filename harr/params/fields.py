"""The base of every section of params.yaml, and the types of its fields."""

import re
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from harr.errors import bare

SECRET = "secret"
"""The type of a fault whose value is not shown."""
KEPT = "put it into the environment variable that key_variable or token_variable names, or leave it out"
CREDENTIAL = re.compile(
    r"(?i)(api|access|secret|private|auth|bearer|hf|x)[-_]?(key|token)|^(token|auth|bearer|pwd)$"
    r"|secret|passw|credential|authorization|cookie"
)
"""Field names whose values belong in the environment; ``max_tokens`` and ``eos_token`` are not among them."""
BEARER = re.compile(r"(?i)bearer \S{8}")
"""What a header says before a key, whatever the field is called."""

STORE = "put a token into the environment variable MLFLOW_TRACKING_TOKEN"

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


Positive = Annotated[int, Field(ge=1)]


Item = TypeVar("Item")


Seed = Annotated[int, Field(ge=0, lt=2**31)]


def _no_user(value: str) -> str:
    """Reject a user name or password in an address: DVC copies params.yaml into dvc.lock, and stages print it."""
    if bare(value) != value:
        raise ValueError(
            "an address takes no user name and no password; leave them out, and put a key or token into the "
            "environment variable that key_variable or token_variable names"
        )
    return value


def _store(value: str) -> str:
    """Check the address of an MLflow store: a password is allowed, but no query or fragment in a server's address."""
    if value.startswith(("http:", "https:")) and {"?", "#"} & {*value}:
        raise PydanticCustomError(SECRET, "an address takes no query and no fragment, which may hold a key; " + STORE)
    return value


def _address(value: str) -> str:
    """Check a server's address: http:// or https://, a host, and a valid port."""
    try:
        parts = urlsplit(value)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # an unclosed bracket, or a port above 65535
        fits = False
    if not fits or not value.isprintable() or " " in value:
        raise ValueError("should be an address with http:// or https://, such as http://127.0.0.1:8000/v1")
    if "?" in value or "#" in value:
        raise PydanticCustomError(SECRET, "an address takes no query and no fragment, which may hold a key; " + KEPT)
    return _no_user(value)


def _variable(value: str) -> str:
    """Check the name of an environment variable: anything else may be the key itself, which is not shown."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", value):
        text = "should be the name of an environment variable (letters, digits and _), never its value; what was found "
        raise PydanticCustomError(SECRET, text + "is not shown, as it may be a key")
    return value


def _no_credentials(values: dict[str, Any]) -> dict[str, Any]:
    """Reject fields that are named like a key or password, at any depth: their values would be written down.

    Numbers and booleans are accepted: they count or switch something.
    """
    pending: list[tuple[str, Any]] = list(values.items())
    while pending:
        name, value = pending.pop()
        secret = CREDENTIAL.search(name) and isinstance(value, str | list | dict) and value
        if secret or (isinstance(value, str) and BEARER.match(value)):
            raise PydanticCustomError(SECRET, f"{name} looks like a key or password; " + KEPT)
        if isinstance(value, dict):
            pending += [(str(key), part) for key, part in value.items()]
        elif isinstance(value, list):
            pending += [(name, part) for part in value]
    return values


def _place(value: str) -> str:
    """Check a path, or a name that may be one: at most 255 bytes between two slashes, and no control character."""
    if max(len(part.encode("utf-8", "replace")) for part in value.split("/")) > 255 or len(value) > 4000:
        raise ValueError("should be a path or name with at most 255 bytes between two slashes")
    if not value.isprintable() or value != value.strip():
        raise ValueError("should be a path or name without line breaks, and without blanks around it")
    return value


def _several(values: tuple[Item, ...]) -> tuple[Item, ...]:
    if not values:
        raise ValueError("should have at least one item")
    return values


def _registered(value: str) -> str:
    """Check a name for MLflow's registry, which keeps 256 characters; a promotion makes a longer name from it."""
    if not re.fullmatch(r"""[^\s/:@'".][^/:@'"]{0,199}""", value) or not value.isprintable():
        raise ValueError(
            "should be a name of 1 to 200 characters, without / : @ and quotes, and with no dot at its start"
        )
    return value


def _experiment(value: str) -> str:
    if not value.strip() or not value.isprintable() or len(value) > 500:
        raise ValueError("should be a name of 1 to 500 characters")
    return value


def is_dotted(name: str) -> bool:
    """Return whether a name has the shape ``package.module:function``; nothing is imported.

    >>> is_dotted("mine.agent:play"), is_dotted("mine.agent"), is_dotted("mine/agent.py:play")
    (True, False, False)
    """
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _dotted(value: str) -> str:
    if not is_dotted(value):
        raise ValueError("should be package.module:function")
    return value


Address = Annotated[str, AfterValidator(_address)]


StoreAddress = Annotated[str, AfterValidator(_store)]
MaybeAddress = Annotated[str, AfterValidator(lambda value: _address(value) if value else value)]
"""An address, or the empty string."""


Variable = Annotated[str, AfterValidator(_variable)]
"""The name of an environment variable."""


Plain = Annotated[dict[str, Any], AfterValidator(_no_credentials)]
"""Fields passed on unchanged, none of them a key or password."""


Uri = Annotated[str, AfterValidator(_no_user)]
"""An address other than http."""


MaybePathOrName = Annotated[str, AfterValidator(_place)]


PathOrName = Annotated[str, StringConstraints(min_length=1), AfterValidator(_place)]
"""A file, a folder, or a model by its folder or hub name."""


NonEmpty = Annotated[tuple[Item, ...], AfterValidator(_several)]


RegistryName = Annotated[str, AfterValidator(_registered)]


ExperimentName = Annotated[str, AfterValidator(_experiment)]
Dotted = Annotated[str, AfterValidator(_dotted)]
"""A function or class of another package, ``package.module:function``; it is imported when needed."""


class Section(BaseModel):
    """A closed, immutable group of parameters, whose numbers are finite.

    The docstring of an attribute is its description in the schema, which editors and forms show.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
