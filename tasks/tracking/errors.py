"""Errors of MLflow's clients in one line each: its store is missing, unavailable now, or refuses."""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harr.errors import HarrError, ServiceUnavailable, bare, one_line
from harr.services.failures import connection_remedy

STORE_FAILED = re.compile(r"\((sqlite3|psycopg2)[\w.]*Error\)|out-of-date database schema")
"""How MLflow passes on an error of its database."""
ANSWERED = re.compile(r"failed with error code (\d+)|response body was not in a valid JSON format")
"""How MLflow's client says that a server did answer; without a number, that it is not MLflow."""
CAUSE = re.compile(r"Caused by \w+\([\"']?|>: |connection: ")
"""What precedes the cause in a urllib3 error."""
ASKING = threading.RLock()
"""One thread of a process uses MLflow at a time: of two that import its modules at once, one gets half of them, and two
that open a run for one report make two."""


class Refused(HarrError):
    """The server refuses: trying again does not help."""


@contextmanager
def service() -> Iterator[None]:
    """Use MLflow, one thread at a time, and turn its clients' errors into ours.

    Raises:
        ServiceUnavailable: the server does not answer, or its store cannot be used now.
        Refused: the server refuses.
    """
    with ASKING:
        from alembic.util import CommandError
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import DatabaseError

        try:
            yield
        except (MlflowException, DatabaseError, CommandError) as error:
            raise _as_ours(error) from None


def _as_ours(error: Any) -> Exception:
    """Return our error for one of MLflow's, or the error itself."""
    message = str(getattr(error, "message", ""))  # those of SQLAlchemy and Alembic have none
    if not message or STORE_FAILED.search(message) or error.error_code == "TEMPORARILY_UNAVAILABLE":
        return ServiceUnavailable(
            f"the MLflow store, mlflow.db or what tracking.uri names, cannot be used ({one_line(error, 300)}); mend it, "
            "and run the same command again"
        )
    if not message.startswith("API request to"):
        return Refused(f"MLflow refuses this: {bare(message.splitlines()[0])[:300]}")
    if answered := ANSWERED.search(message):
        kind = ServiceUnavailable if int(answered[1] or 500) >= 500 else Refused
        return kind(f"at MLflow's address: {one_line(message, 300)}")
    where, _, why = bare(message.removeprefix("API request to ")).partition(" failed with ")
    cause = one_line(CAUSE.split(why)[-1].strip("'\")"))
    setting = setting_of(where)
    return ServiceUnavailable(
        f"the MLflow server does not answer ({where}: {cause}); {connection_remedy(cause, where, setting)}"
    )


def setting_of(address: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return what sets the server of an address: the variable, if it does, else tracking.uri."""
    named = bare(environment.get("MLFLOW_TRACKING_URI", "")).rstrip("/")
    return "the variable MLFLOW_TRACKING_URI" if named and bare(address).startswith(named) else "tracking.uri"


@contextmanager
def uploading(name: str) -> Iterator[None]:
    """Turn the errors of an artifact store into ours; each kind of store has its own client and errors.

    Raises:
        Refused: there is no such file, or the store refuses (an HTTP status 4xx).
        ServiceUnavailable: anything else, which may work later.
    """
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, HarrError):
        raise
    except FileNotFoundError as error:
        raise Refused(f"{error.filename or name} is gone") from None
    except Exception as error:
        line = f"{name}: {type(error).__name__}: {bare(' '.join(str(error).split()))[:300]}"
        if 400 <= (_http_status(error) or _http_status(error.__context__)) < 500:
            raise Refused(line) from None
        raise ServiceUnavailable(f"MLflow's artifact store does not take {line}") from None


def _http_status(error: BaseException | None) -> int:
    """Return the HTTP status in an error of requests or boto, or 0."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return int(getattr(response, "status_code", 0))


def look_up(ask: Callable[..., Any], *names: str) -> Any | None:
    """Return the store's answer, or None if it has no such thing."""
    from mlflow.exceptions import MlflowException

    try:
        return ask(*names)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


def done_once(make: Callable[..., Any], *names: str, **values: Any) -> bool:
    """Have the store do something that it does only once; return False if another was first."""
    from mlflow.exceptions import MlflowException

    try:
        make(*names, **values)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"):
            return False
        raise
    return True
