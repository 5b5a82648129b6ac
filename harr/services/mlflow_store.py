"""MLflow's store: its client, and the artifact paths in mlflow.db after a checkout was copied or moved.

MLflow keeps absolute paths, so a copied checkout would write into the original folder, and a moved one would find
nothing.
"""

import fcntl
import logging
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tqdm import tqdm

from harr.errors import ServiceUnavailable

STORE = re.compile(r"(https?|sqlite|postgresql|mysql|mssql)(\+\w+)?://")
"""Start of an address: of a server, or of a database that MLflow can use as its store."""
FILES, DATABASE = "mlruns", "mlflow.db"
"""Parts of a store in a folder."""
ARTIFACTS = "_MLFLOW_SERVER_ARTIFACT_ROOT"
"""Environment variable with the artifact folder of new experiments."""
ROOT = re.compile(rf"(/.*/{FILES})/\d+")
PLACES = {
    "experiments": ("artifact_location",),
    "runs": ("artifact_uri",),
    "model_versions": ("source", "storage_location"),
    "logged_models": ("artifact_location",),
    "trace_tags": ("value",),
}
"""Columns of MLflow's database with paths of files."""
SECONDS = 30.0
"""How long to wait for a database that another process writes to."""


def client_of(address: str, project: Path = Path()) -> Any:
    """Return a client of the store at this address; that of a copied or moved ``project`` keeps its files there.

    Raises:
        ServiceUnavailable: another process has its database.
    """
    bring_home(address, project)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the report waits, not the stage
    from mlflow import MlflowClient

    for noisy in ("alembic", "mlflow.tracking", "mlflow.store.model_registry"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it both logs and raises errors
    database = database_of(address)
    opened_alone = lock_folder(database.parent) if database and database.parent.is_dir() else nullcontext()
    with files_beside(address), opened_alone:  # MLflow creates and changes a database's tables without a lock
        return MlflowClient(f"sqlite:///{database.absolute()}" if database else address)


def bring_home(address: str, project: Path = Path()) -> None:
    """Make the store of a copied or moved checkout keep its artifacts next to it, and say so on stderr.

    This changes paths below the mlruns of the original folder, if that is gone or has its own mlflow.db. Any other
    path, such as a disk for artifacts, was chosen by a person and stays.

    Raises:
        ServiceUnavailable: another process has the database, or it cannot be written.
    """
    database = own_database(address, project)
    if database is None or not (strangers := foreign_roots(database)):
        return
    here = database.parent / FILES
    try:
        with closing(sqlite3.connect(database, timeout=SECONDS)) as store, store:
            for there in strangers:
                for table, columns in PLACES.items():
                    for column in columns:
                        moved = (
                            f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?"
                        )
                        store.execute(moved, (f"{here}/", len(there) + 2, len(there) + 1, f"{there}/"))
    except sqlite3.OperationalError as error:
        raise ServiceUnavailable(
            f"{database} was copied or moved, and its places of artifacts cannot be changed ({error}); let it be "
            "written, and run the same command again"
        ) from None
    missing = "" if any(here.glob("*/*")) else "; files of earlier runs were not copied along"
    was = ", ".join(strangers)
    line = f"{DATABASE} was copied or moved: its artifacts are in {here} now, not in {was}{missing}"
    tqdm.write(line, file=sys.stderr)


@contextmanager
def files_beside(address: str) -> Iterator[None]:
    """Make a store opened in the block keep artifacts next to its database file, unless a variable says where.

    MLflow would use the current folder, such as a worktree that shares another's database and is removed one day.
    """
    if os.environ.get(ARTIFACTS) or (database := database_of(address)) is None:
        yield
        return
    os.environ[ARTIFACTS] = str(database.absolute().parent / FILES)
    try:
        yield
    finally:
        del os.environ[ARTIFACTS]


def database_of(address: str) -> Path | None:
    """Return the database file that an address names; None for any other store.

    >>> database_of("sqlite:////runs/mlflow.db"), database_of("sqlite:///mlflow.db"), database_of("http://a")
    (PosixPath('/runs/mlflow.db'), PosixPath('mlflow.db'), None)
    """
    is_file = address.startswith("sqlite:///") and "?" not in address
    return Path(address.removeprefix("sqlite:///")) if is_file else None


def own_database(address: str, project: Path = Path()) -> Path | None:
    """Return a project's database file, whose artifacts belong next to it; None for any other store."""
    if (database := database_of(address)) is None or not database.is_file():
        return None
    root = Path(os.environ.get(ARTIFACTS) or project / FILES).absolute()
    return database.absolute() if root == database.absolute().parent / FILES else None


def foreign_roots(database: Path) -> list[str]:
    """Return the mlruns folders of other checkouts in which experiments of this one keep artifacts.

    Raises:
        ServiceUnavailable: another process has the database.
    """
    database = database.absolute()
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=SECONDS)) as store:
            rows = store.execute("SELECT DISTINCT artifact_location FROM experiments").fetchall()
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise ServiceUnavailable(f"{database} is busy ({error}); run the same command again") from None
        return []  # no table yet
    except sqlite3.DatabaseError:  # MLflow reports that it is damaged
        return []
    roots = {match[1] for (place,) in rows if (match := ROOT.fullmatch(place or ""))}
    return sorted(root for root in roots - {str(database.parent / FILES)} if _is_abandoned(Path(root)))


def _is_abandoned(root: Path) -> bool:
    """Return whether an mlruns folder is gone, or belongs to a checkout with its own store."""
    return not root.exists() or (root.parent / DATABASE).exists()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder during the block; wait while another process has the lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
