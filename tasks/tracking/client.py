"""Clients of MLflow's store, and its address."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harr.errors import ParamsError, bare
from harr.params import Params
from harr.services.mlflow_store import DATABASE, STORE, client_of, database_of
from tasks.tracking.errors import setting_of


def open_client(params: Params) -> Any:
    """Return a client of the tracking server, or of sqlite:///mlflow.db."""
    return client_of(address_of(params))


def address_of(params: Params, environment: Mapping[str, str] = os.environ) -> str:
    """Return where the runs go: tracking.uri, MLFLOW_TRACKING_URI, or the project's database.

    `dvc exp run --temp` and `--queue` run in a folder that they remove, and name the project's folder in DVC_ROOT. A
    database in this folder or one above it is named relative to it, so that a note of a run survives a move of both.

    Raises:
        ParamsError: MLflow has no store for such an address; MLflow 3 refuses a folder.
    """
    address = params.tracking.uri or environment.get("MLFLOW_TRACKING_URI") or f"sqlite:///{DATABASE}"
    if not STORE.match(address):
        raise ParamsError(
            f"{bare(address)} is no address of an MLflow store; correct {setting_of(address, environment)}: http://... or "
            "sqlite:///..."
        )
    if (database := database_of(address)) is None:
        return address
    folder = (environment.get("DVC_ROOT", "") / database).parent.resolve()
    here = Path().resolve()
    named = os.path.relpath(folder, here) if folder in (here, *here.parents) else folder
    return f"sqlite:///{named / Path(database.name)}"
