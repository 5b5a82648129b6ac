"""Clients of MLflow's store, and its address."""

import fcntl
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from harr.errors import ParamsError, bare
from harr.params import Params
from tasks.tracking.errors import setting_of
from tasks.tracking.relocate import bring_home, files_beside

STORE = re.compile(r"(https?|sqlite|postgresql|mysql|mssql)(\+\w+)?://")
"""Start of an address: of a server, or of a database that MLflow can use as its store."""


def open_client(params: Params) -> Any:
    """Return a client of the tracking server, or of sqlite:///mlflow.db."""
    return client_of(address_of(params))


def address_of(params: Params, environment: Mapping[str, str] = os.environ) -> str:
    """Return where the runs go: tracking.uri, MLFLOW_TRACKING_URI, or the project's database.

    `dvc exp run --temp` and `--queue` run in a folder that they remove, and name the project's folder in DVC_ROOT.

    Raises:
        ParamsError: MLflow has no store for such an address; MLflow 3 refuses a folder.
    """
    root = Path(environment.get("DVC_ROOT", ""))
    own = root.resolve() == Path().resolve()
    database = "sqlite:///mlflow.db" if own else f"sqlite:///{root}/mlflow.db"
    address = params.tracking.uri or environment.get("MLFLOW_TRACKING_URI") or database
    if not STORE.match(address):
        raise ParamsError(
            f"{bare(address)} is no address of an MLflow store; correct {setting_of(address, environment)}: http://... or "
            "sqlite:///..."
        )
    return address


def client_of(address: str) -> Any:
    """Return a client of the store at this address; a store in a copied or moved folder keeps its files there.

    Raises:
        ServiceUnavailable: another process has its database.
    """
    bring_home(address)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the report waits, not the stage
    from mlflow import MlflowClient

    for noisy in ("alembic", "mlflow.tracking", "mlflow.store.model_registry"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it both logs and raises errors
    place = Path(address.removeprefix("sqlite:///").partition("?")[0]).parent
    opened_alone = lock_folder(place) if address.startswith("sqlite:///") and place.is_dir() else nullcontext()
    with files_beside(address), opened_alone:  # MLflow creates and changes a database's tables without a lock
        return MlflowClient(address)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder during the block; wait while another process has the lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
