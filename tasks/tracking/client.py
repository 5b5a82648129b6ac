"""Clients of MLflow's store: its address, and which one answers there."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harr.errors import ParamsError, bare
from harr.params import Params
from tasks.tracking.relocate import bring_home, files_beside

LONGEST = 500
"""Bytes of a path that SQLite opens, with its journal next to it (it takes 512)."""


def open_client(params: Params) -> Any:
    """Return a client of the tracking server, or of sqlite:///mlflow.db."""
    return client_of(address_of(params))


def address_of(params: Params, environment: Mapping[str, str] = os.environ) -> str:
    """Return where the runs go: tracking.uri, MLFLOW_TRACKING_URI, or the project's database.

    `dvc exp run --temp` and `--queue` run in a folder that they remove, and name the project's as DVC_ROOT.
    """
    root = Path(environment.get("DVC_ROOT", ""))
    own = root.resolve() == Path().resolve()
    database = "sqlite:///mlflow.db" if own else f"sqlite:///{root}/mlflow.db"
    return params.tracking.uri or environment.get("MLFLOW_TRACKING_URI") or database


def client_of(address: str) -> Any:
    """Return a client of the store at this address; one in a folder that was copied or moved keeps its files there.

    Raises:
        ParamsError: MLflow has no store of such an address, or SQLite opens no path as long.
        ServiceUnavailable: another process has its database.
    """
    path = os.path.abspath(address.removeprefix("sqlite:///"))
    if address.startswith("sqlite:///") and len(os.fsencode(path)) > LONGEST:  # MLflow would try for minutes
        raise ParamsError(
            f"{path}: SQLite opens no path of more than {LONGEST} bytes; put the project into another folder"
        )
    bring_home(address)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the report waits, not the stage
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    for noisy in ("alembic", "mlflow.tracking", "mlflow.store.model_registry"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it logs a traceback and raises it, too
    try:
        with files_beside(address):
            return MlflowClient(address)
    except MlflowException:  # of the scheme; its text may hold a password
        remedy = "set tracking.uri or MLFLOW_TRACKING_URI to http://... or sqlite:///..."
        raise ParamsError(f"{bare(address)} is no address of an MLflow store; {remedy}") from None
