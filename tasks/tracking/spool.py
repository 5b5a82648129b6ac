"""Writes that a tracking server did not take: kept on disk in their order, and sent when it answers again.

Every run has a journal of its own, made when its first write fails. A write is one JSON line, on disk
before the stage goes on. The process that writes a journal holds a lock on it; when it is gone,
whichever stage comes next sends what is left, oldest journal first.
"""

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from harr.errors import DamagedFile, HarrError, bare
from harr.io.files import fingerprint, parse_state, read_state, write_json, write_text

SPOOL = Path("work/spool")
REFUSED = "refused.jsonl"
BY_HAND = "correct it by hand, or delete it: what it kept for MLflow is lost then"
Write = dict[str, Any]
Place = dict[str, str]
"""Where the writes of a run go: its ids on the server; empty while the run is not made there."""
Perform = Callable[[Place, Write], Place]
"""Does one write and returns the place: the same, or that of a run just made."""


def spool_of(address: str) -> Path:
    """The folder for the journals of one server."""
    return SPOOL / fingerprint(bare(address))


def remember(address: str) -> None:
    """Note that a server has answered: from now on it may be down for a while. A password is not noted."""
    path = spool_of(address) / "address"
    if not path.exists():
        write_text(path, bare(address) + "\n")


def remembered(address: str) -> bool:
    """Whether a server has answered in this folder before."""
    return (spool_of(address) / "address").exists()


class Refused(HarrError):
    """The server is there and says no: trying again does not help."""


def set_aside(spool: Path, write: Write, error: Refused, *, tell: bool) -> None:
    """Note a refused write in the spool, and ``tell`` of it: a run that lacks a figure or a file is still a run."""
    spool.mkdir(parents=True, exist_ok=True)
    with (spool / REFUSED).open("a", encoding="utf-8") as refused:
        refused.write(json.dumps(write) + "\n")
    if tell:
        print(f"warning: MLflow refused a write ({write['do']}): {error}; it is in {spool / REFUSED}", file=sys.stderr)


def tell_refused(spool: Path, stage: str, count: int) -> None:
    """How many writes of a stage were refused; of one alone is told when it happens."""
    if count > 1:
        print(
            f"warning: MLflow refused {count} writes of stage {stage}; they are in {spool / REFUSED}", file=sys.stderr
        )


class Journal:
    """The kept writes of one run. Nothing is on disk before the first is added."""

    def __init__(self, spool: Path, name: str) -> None:
        self.path = spool / f"{name}.jsonl"
        self.file: IO[bytes] | None = None

    def __len__(self) -> int:
        """How many writes wait."""
        return len(_lines(self.path)) - _done(self.path)["done"] if self.file else 0

    def add(self, place: Place, write: Write) -> None:
        """Keep one write; ``place`` is that of the run so far."""
        if self.file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = _locked(self.path)
            _note(self.path, 0, place)
        self.file.write(json.dumps(write).encode() + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def keep(self, path: Path) -> Path:
        """Copy a file or folder into the spool, because a stage may change it before it is sent."""
        folder = self.path.with_suffix("")
        copy = folder / f"{sum(1 for _ in folder.glob('*'))}" / path.name
        copy.parent.mkdir(parents=True)
        if path.is_dir():
            shutil.copytree(path, copy)
        else:
            shutil.copy2(path, copy)
        return copy

    def send(self, perform: Perform) -> Place:
        """Send all writes in order and forget them; returns the place of the run.

        Whatever ``perform`` raises but ``Refused`` ends it; the writes that were not sent stay.
        """
        place = _send(self.path, perform)
        self.close()
        _forget(self.path)
        return place

    def close(self) -> None:
        """Let another process send what is left."""
        if self.file:
            self.file.close()
            self.file = None


def send_left(spool: Path, perform: Perform) -> int:
    """Send the journals of runs whose process is gone, oldest first; returns how many were sent.

    A damaged one is put aside, and keeps no other waiting.
    """
    sent = 0
    for path in waiting(spool):
        with _unless_in_use(path) as free:
            if free:
                try:
                    _send(path, perform)
                except DamagedFile as error:
                    _put_aside(path, error)
                else:
                    _forget(path)
                    sent += 1
    return sent


def waiting(spool: Path) -> list[Path]:
    """All journals of a server, oldest first."""
    return sorted(path for path in spool.glob("*.jsonl") if path.name != REFUSED)


def _send(path: Path, perform: Perform) -> Place:
    """Send a journal's writes from the first that was not noted as done.

    One that was sent in the moment before a kill is sent again; every write is such that this changes nothing.
    """
    told = _done(path)
    place: Place = told["place"]
    refused = 0
    for number, line in enumerate(_lines(path)[told["done"] :], start=told["done"] + 1):
        write: Write = parse_state(line, f"{path}:{number}", BY_HAND, {"do": str})
        try:
            place = perform(place, write)
        except Refused as error:
            refused += 1
            set_aside(path.parent, write, error, tell=refused == 1)
        _note(path, number, place)
    tell_refused(path.parent, path.stem.partition("-")[2], refused)
    return place


def _lines(path: Path) -> list[bytes]:
    """The whole lines; one that a kill cut short was never acknowledged."""
    return path.read_bytes().split(b"\n")[:-1]


def _done(path: Path) -> dict[str, Any]:
    note = path.with_suffix(".done")
    return read_state(note, BY_HAND, done=int, place=dict) if note.exists() else {"done": 0, "place": {}}


def _note(path: Path, done: int, place: Mapping[str, str]) -> None:
    write_json(path.with_suffix(".done"), {"done": done, "place": dict(place)})


def _put_aside(path: Path, error: DamagedFile) -> None:
    """Give a damaged journal, and the note of what was sent of it, names under which nobody looks for them."""
    for part in (path, path.with_suffix(".done")):
        if part.exists():
            part.replace(part.with_name(f"{part.name}.damaged"))
    print(f"warning: {error}; the journal is now {path}.damaged, and the others go on", file=sys.stderr)


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(".done").unlink(missing_ok=True)
    shutil.rmtree(path.with_suffix(""), ignore_errors=True)


def _locked(path: Path) -> IO[bytes]:
    """The journal, open for its writer alone; made anew if another process has just sent and removed it."""
    while True:
        file = path.open("ab")
        fcntl.flock(file, fcntl.LOCK_EX)
        if _is_at(file, path):
            return file
        file.close()


@contextmanager
def _unless_in_use(path: Path) -> Iterator[bool]:
    """Hold a journal while it is sent; False where its writer, or another sender, has it."""
    try:
        file = path.open("rb")
    except FileNotFoundError:  # sent by another in between
        yield False
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield _is_at(file, path)


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one of this name."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
