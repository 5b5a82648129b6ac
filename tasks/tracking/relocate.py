"""Artifact paths in mlflow.db after a checkout was copied or moved.

MLflow keeps absolute paths, so a copied checkout would write into the original folder, and a moved one would find
nothing.
"""

import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from harr.errors import ServiceUnavailable

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


def bring_home(address: str) -> None:
    """Make the store of a copied or moved checkout keep its artifacts next to it, and say so on stderr.

    This changes paths below the mlruns of the original folder, if that is gone or has its own mlflow.db. Any other
    path, such as a disk for artifacts, was chosen by a person and stays.

    Raises:
        ServiceUnavailable: another process has the database, or it cannot be written.
    """
    database = own_database(address)
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
    print(f"{DATABASE} was copied or moved: its artifacts are in {here} now, not in {was}{missing}", file=sys.stderr)


@contextmanager
def files_beside(address: str) -> Iterator[None]:
    """Make a store opened in the block keep artifacts next to its database file, unless a variable says where.

    MLflow would use the current folder, such as a worktree that shares another's database and is removed one day.
    """
    if os.environ.get(ARTIFACTS) or not address.startswith("sqlite:///"):
        yield
        return
    os.environ[ARTIFACTS] = str(Path(address.removeprefix("sqlite:///")).absolute().parent / FILES)
    try:
        yield
    finally:
        del os.environ[ARTIFACTS]


def own_database(address: str) -> Path | None:
    """Return the database file of an address whose artifacts belong next to it; None for any other store."""
    path = Path(address.removeprefix("sqlite:///")).absolute()
    root = Path(os.environ.get(ARTIFACTS) or FILES).absolute()
    is_neighbour = address.startswith("sqlite:///") and "?" not in address and root == path.parent / FILES
    return path if is_neighbour and path.is_file() else None


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
