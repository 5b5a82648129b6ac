"""A folder of answered searches and their outcomes: JSON lines, a file a day of each."""

import json
import os
import re
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harr.errors import ParamsError

FORMAT = 1
SEARCHES, OUTCOMES = "searches", "outcomes"


@dataclass(frozen=True, slots=True)
class LoggedSearch:
    """A search as it was answered."""

    id: str
    at: float
    """Seconds since 1970."""
    version: str
    """The version of the model that answered."""
    reads: str
    """What its states contain (:func:`harr.rag.policies.state.reads`); equal ones read the same states."""
    question: str = ""
    query: str = ""
    state: str = ""
    """The text that the model read; with question and query empty where texts are not kept."""
    chosen: tuple[str, ...] = ()
    """Ids of the passages that were returned, in order."""
    pool: tuple[str, ...] = ()
    """Ids of all candidates, the chosen ones first, where the choice was drawn; empty where it was the best."""
    logprob: float | None = None
    """Log-probability (nats) of the choice under the model, where it was drawn (Plackett-Luce)."""
    kept: int = 0
    """Number of first passages that were the best, where the others were drawn; the log-probability is of those."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """What became of a search, as the application says."""

    id: str
    at: float
    score: float
    """Between 0 and 1."""
    clicked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recording:
    """What a server keeps of its traffic, and which share of it explores.

    Args:
        folder: of the files.
        explore: share of the searches whose passages are drawn by the model's own chances, not its best.
        explore_after: how many first ranks of these stay the best.
        days: files of days before are deleted.
        texts: whether questions, queries and states are kept; without them no other model can be judged by the log.
    """

    folder: Path
    explore: float = 0.0
    explore_after: int = 0
    days: int = 30
    texts: bool = True


class TrafficLog:
    """The files of a server, which appends to them; several servers may share a folder.

    They are named ``<kind>-<day>.jsonl``; those of other ``kinds`` than these are left alone.
    """

    def __init__(self, recording: Recording, kinds: Sequence[str] = (SEARCHES, OUTCOMES)) -> None:
        """Open the folder; a line that a kill broke off goes.

        Raises:
            ParamsError: it cannot be written.
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
            raise ParamsError(f"--log {folder} cannot be written ({error.strerror}); name another folder") from None

    def add_search(self, search: LoggedSearch) -> None:
        """Keep a search."""
        row = search if self.recording.texts else replace(search, question="", query="", state="")
        self.append(SEARCHES, row)

    def outcome(self, outcome: Feedback) -> None:
        """Keep the outcome of a search."""
        self.append(OUTCOMES, outcome)

    def append(self, kind: str, record: Any) -> None:
        """Keep a record, a dataclass, in the files of a kind."""
        day, values = datetime.now(UTC).strftime("%Y%m%d"), asdict(record)
        row = {"format": FORMAT} | {name: value for name, value in values.items() if value not in ((), None, "")}
        line = json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
        with self._lock:
            if day != self._day:
                self._day = day
                self._forget()
            path = self.recording.folder / f"{kind}-{day}.jsonl"
            opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(opened, line.encode())
            finally:
                os.close(opened)

    def _forget(self) -> None:
        oldest = (datetime.now(UTC) - timedelta(days=self.recording.days)).strftime("%Y%m%d")
        for path in self.recording.folder.glob("*.jsonl"):
            if (match := self._name.fullmatch(path.name)) and match[1] < oldest:
                path.unlink(missing_ok=True)


def new_id() -> str:
    """Return the id of a search."""
    return uuid.uuid4().hex


def now() -> float:
    """Return the time, to a millisecond."""
    return round(time.time(), 3)


def _cut_broken_line(path: Path) -> None:
    """Cut off what follows the last line break."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)
