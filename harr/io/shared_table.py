"""An SQLite table that the stages of a run share."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")


class SharedTable:
    """A table of answers in the file ``path``; ``columns`` are its name and columns in SQL.

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
        """Run ``action`` in a transaction and return its result; SQLite raises if the file is not a database."""
        with closing(sqlite3.connect(self.path, timeout=60.0)) as store, store:
            store.text_factory = lambda text: text.decode("utf-8", "replace")
            store.execute(f"CREATE TABLE IF NOT EXISTS {self._columns} WITHOUT ROWID")
            return action(store)
