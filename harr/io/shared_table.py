"""A table on disk that the stages of one run share: an SQLite file."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

Found = TypeVar("Found")
ELSEWHERE = {
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT),
}
"""Failures whose cause is not the bytes of the file."""


class SharedTable:
    """A table of answers in the file ``path``; ``columns`` are its name and columns, as SQL has them.

    >>> import tempfile
    >>> table = SharedTable(Path(tempfile.mkdtemp()) / "known.sqlite", "known (name TEXT PRIMARY KEY, value INTEGER)")
    >>> _ = table.do(lambda store: store.execute("INSERT INTO known VALUES ('a', 1)"))
    >>> table.do(lambda store: store.execute("SELECT * FROM known").fetchall())
    [('a', 1)]
    """

    def __init__(self, path: Path, columns: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._columns = path, columns
        self.do(lambda store: None)

    def do(self, action: Callable[[sqlite3.Connection], Found]) -> Found:
        """Return what ``action`` returns, on disk; a file that SQLite cannot read is set aside, and a new one begun."""
        try:
            return self._done(action)
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            if code in ELSEWHERE or (code == sqlite3.SQLITE_READONLY and not os.access(self.path, os.W_OK)):
                raise
            aside = self.path.with_name(f"{self.path.name}.damaged")
            os.replace(self.path, aside)
            for suffix in ("-journal", "-wal", "-shm"):  # they belong to the old file
                self.path.with_name(f"{self.path.name}{suffix}").unlink(missing_ok=True)
            tqdm.write(f"{self.path} is damaged ({error}); it is now {aside.name}, and its content is asked for again")
            return self._done(action)

    def _done(self, action: Callable[[sqlite3.Connection], Found]) -> Found:
        with closing(sqlite3.connect(self.path, timeout=60.0)) as store, store:
            store.text_factory = lambda text: text.decode("utf-8", "replace")
            store.execute(f"CREATE TABLE IF NOT EXISTS {self._columns} WITHOUT ROWID")
            return action(store)
