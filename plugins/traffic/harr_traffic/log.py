"""The log of `harr serve`, read again: its searches, their outcomes, and the records of a shadow."""

import json
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from harr.errors import DamagedFile, ParamsError
from harr.serve.log import FORMAT, OUTCOMES, SEARCHES, Feedback, LoggedSearch

Row = TypeVar("Row")


def read_log(folder: Path) -> tuple[list[LoggedSearch], dict[str, Feedback]]:
    """Return all searches of a folder by their time, and the last outcome of each by its id.

    Raises:
        ParamsError: there is no log in it, or it cannot be read.
        DamagedFile: a line is none of ours, of another format, or there twice; nothing is half-read.
    """
    searches = read_records(LoggedSearch, folder, SEARCHES, key=lambda search: search.id)
    if not searches:
        raise ParamsError(f"{folder} holds no {SEARCHES}-*.jsonl; name the folder of `harr serve --log`")
    outcomes = read_records(Feedback, folder, OUTCOMES)
    return searches, {outcome.id: outcome for outcome in outcomes}


def read_records(
    kind: type[Row], folder: Path, name: str, *, key: Callable[[Row], Hashable] | None = None
) -> list[Row]:
    """Return the records of the files ``<name>-<day>.jsonl`` of a folder, by their time (``at``).

    Args:
        kind: the dataclass of a row.
        folder: of the log.
        name: what the files hold.
        key: what no two records share; None where one may follow another.

    Raises:
        ParamsError, DamagedFile: as :func:`read_log`.
    """
    records: list[Any] = []
    keys: set[Hashable] = set()
    for row, place in _rows(folder, name):
        record = _record(kind, row, place)
        if key and key(record) in keys:
            raise DamagedFile(f"{place}: search {row['id']} is there twice; remove the copy of its file")
        if key:
            keys.add(key(record))
        records.append(record)
    return sorted(records, key=lambda record: record.at)


def _rows(folder: Path, kind: str) -> Iterator[tuple[dict[str, Any], str]]:
    for path in sorted(folder.glob(f"{kind}-*.jsonl")):
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise ParamsError(f"{path} cannot be read ({error.strerror}); make it a file of yours") from None
        for number, line in enumerate(lines, 1):
            place = f"{path}:{number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise DamagedFile(f"{place}: no JSON; remove the line, or the file") from None
            if not isinstance(row, dict) or row.pop("format", None) != FORMAT:
                raise DamagedFile(f"{place}: no row of format {FORMAT}; name a folder that this version logged to")
            yield row, place


def _record(kind: type[Row], row: dict[str, Any], place: str) -> Row:
    """Return a row as its record.

    Raises:
        DamagedFile: a field is missing or unknown.
    """
    try:
        return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})
    except TypeError as error:
        raise DamagedFile(f"{place}: no row of a log ({error}); remove the line, or the file") from None
