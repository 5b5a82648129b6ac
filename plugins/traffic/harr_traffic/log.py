"""A folder of answered searches and their outcomes: JSON lines, one file of each per day."""

import errno
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from harr.errors import DamagedFile, ParamsError
from harr.params.fields import Section
from harr.serve.bodies import refusal

FORMAT = 1
SEARCHES, OUTCOMES = "searches", "outcomes"


@dataclass(frozen=True, slots=True)
class LoggedSearch:
    """A search as it was answered."""

    id: str
    at: float
    """Seconds since 1970."""
    version: str
    """Version of the model that answered."""
    reads: str = ""
    """What its states contain (:func:`harr.rag.policies.state.reads`); equal values mean the same states. Empty if the
    model reads no state, as BM25."""
    question: str = ""
    query: str = ""
    state: str = ""
    """Text that the model read; empty, like question and query, if texts are not kept."""
    chosen: tuple[str, ...] = ()
    """Ids of the returned passages, in order."""
    pool: tuple[str, ...] = ()
    """Ids of all candidates, the chosen ones first, if the choice was drawn; empty if it was the best."""
    logprob: float | None = None
    """Log-probability (nats) of the choice under the model, if it was drawn (Plackett-Luce)."""
    kept: int = 0
    """Number of first passages that were the best while the rest were drawn; ``logprob`` is of the rest."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """The outcome of a search, as the application reports it."""

    id: str
    at: float
    score: float
    """Between 0 and 1."""
    clicked: tuple[str, ...] = ()


class Recording(Section):
    """What a server keeps of its traffic, and which share of it explores."""

    folder: Path
    """Folder of the files."""
    explore: float = Field(0.0, ge=0, le=1)
    """Share of the searches whose passages are sampled from the model instead of its best."""
    explore_after: int = Field(0, ge=0)
    """Number of first ranks in these searches that stay the best."""
    days: int = Field(30, ge=1)
    """Number of days after which files are deleted."""
    texts: bool = True
    """Whether questions, queries and states are kept; without them the log can judge no other model."""


Row = TypeVar("Row")


class TrafficLog:
    """The files that a server appends to; several servers may share a folder.

    They are named ``<kind>-<day>.jsonl``; files of kinds not in ``kinds`` are left alone.
    """

    def __init__(self, recording: Recording, kinds: Sequence[str] = (SEARCHES, OUTCOMES)) -> None:
        """Open the folder and remove a line that a kill cut off.

        Raises:
            ParamsError: the folder cannot be written.
        """
        self.recording, self._lock, self._day = recording, threading.Lock(), ""
        self._name = re.compile(rf"(?:{'|'.join(kinds)})-(\d{{8}})\.jsonl")
        folder = recording.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.glob("*.jsonl"):
                if self._name.fullmatch(path.name):
                    _cut_broken_line(path)
        except OSError as error:
            raise ParamsError(
                f"{folder}: no log can be written there ({error.strerror}); name another folder"
            ) from None

    def add_search(self, search: LoggedSearch) -> None:
        """Append a search."""
        row = search if self.recording.texts else replace(search, question="", query="", state="")
        self.append(SEARCHES, row)

    def outcome(self, outcome: Feedback) -> None:
        """Append the outcome of a search."""
        self.append(OUTCOMES, outcome)

    def append(self, kind: str, record: Any) -> None:
        """Append a record, a dataclass, to the files of a kind; :func:`read_records` reads it.

        Raises:
            OSError: it could not be written; no part of it is left.
        """
        day, values = datetime.now(UTC).strftime("%Y%m%d"), asdict(record)
        row = {"format": FORMAT} | {name: value for name, value in values.items() if value not in ((), None, "")}
        line = json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
        with self._lock:
            if day != self._day:
                self._day = day
                self._forget()
            path = self.recording.folder / f"{kind}-{day}.jsonl"
            self.recording.folder.mkdir(parents=True, exist_ok=True)  # somebody may have moved it
            opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                text = line.encode()
                if (written := os.write(opened, text)) < len(text):
                    os.ftruncate(opened, os.fstat(opened).st_size - written)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(opened)

    def _forget(self) -> None:
        oldest = (datetime.now(UTC) - timedelta(days=self.recording.days)).strftime("%Y%m%d")
        for path in self.recording.folder.glob("*.jsonl"):
            if (match := self._name.fullmatch(path.name)) and match[1] < oldest:
                path.unlink(missing_ok=True)


def new_id() -> str:
    """Return a new id for a search."""
    return uuid.uuid4().hex


def now() -> float:
    """Return the time in seconds since 1970, to a millisecond."""
    return round(time.time(), 3)


def read_log(folder: Path) -> tuple[list[LoggedSearch], dict[str, Feedback]]:
    """Return all searches of a folder by time, and the last outcome of each by id.

    Raises:
        ParamsError: the folder has no log, or it cannot be read.
        DamagedFile: a line is damaged or of another format, or a search is repeated.
    """
    searches = read_records(LoggedSearch, folder, SEARCHES, key=lambda search: search.id)
    if not searches:
        raise ParamsError(
            f"{folder} holds no {SEARCHES}-*.jsonl; name the folder that harr_traffic.recorder:Recorder wrote"
        )
    outcomes = read_records(Feedback, folder, OUTCOMES)
    return searches, {outcome.id: outcome for outcome in outcomes}


def read_records(
    kind: type[Row], folder: Path, name: str, *, key: Callable[[Row], Hashable] | None = None
) -> list[Row]:
    """Return the records of the files ``<name>-<day>.jsonl`` of a folder, by time (``at``).

    Args:
        kind: dataclass of a row.
        folder: folder of the log.
        name: first part of the files' names.
        key: what no two records share; None if records may repeat.

    Raises:
        ParamsError: a file cannot be read.
        DamagedFile: a line is damaged, of another format or of other types, or a record is repeated.
    """
    records: list[Any] = []
    keys: set[Hashable] = set()
    adapter = TypeAdapter(kind)
    names = {"format", *adapter.json_schema()["properties"]}
    for row, line, place in _rows(folder, name):
        if unknown := row.keys() - names:
            raise DamagedFile(f"{place}: no row of a log (unknown {min(unknown)!r}); remove the line, or the file")
        try:
            record: Any = adapter.validate_json(line, strict=True)
        except ValidationError as error:
            raise DamagedFile(f"{place}: no row of a log ({refusal(error)}); remove the line, or the file") from None
        if key and key(record) in keys:
            raise DamagedFile(f"{place}: search {record.id} is there twice; remove the copy of its file")
        if key:
            keys.add(key(record))
        records.append(record)
    return sorted(records, key=lambda record: record.at)


def _rows(folder: Path, kind: str) -> Iterator[tuple[dict[str, Any], bytes, str]]:
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
            if not isinstance(row, dict) or row.get("format") != FORMAT:
                raise DamagedFile(f"{place}: no row of format {FORMAT}; name a folder that this version logged to")
            yield row, line, place


def _cut_broken_line(path: Path) -> None:
    """Cut off what follows the last line break."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)
