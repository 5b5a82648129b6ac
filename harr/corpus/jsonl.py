"""JSON lines, plain or gzipped: rows with their place, and passages and questions made of them."""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harr.errors import CorpusError
from harr.types import Passage, Question


@dataclass(frozen=True, slots=True)
class Row:
    """One object of a file and where it stands; ``place`` is ``file:line``."""

    values: Mapping[str, Any]
    place: str

    def text(self, key: str, kind: str) -> str:
        """The non-empty string under ``key``, inner white space folded.

        Raises:
            CorpusError: names the place, the key and what was found.
        """
        found = self.values.get(key)
        folded = " ".join(found.replace("\x00", " ").split()) if isinstance(found, str) else ""
        if not folded:
            what = "is missing" if found is None else f"is {str(found)[:40]!r}"
            raise CorpusError(f"{self.place}: {kind} without {key} ({key} {what}); expected a non-empty string")
        return folded

    def strings(self, key: str) -> tuple[str, ...]:
        """The list of strings under ``key``; empty where it is absent.

        Raises:
            CorpusError: it is something else.
        """
        found = self.values.get(key) or []
        if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
            raise CorpusError(f"{self.place}: {key} is {str(found)[:60]!r}; expected a list of strings")
        return tuple(found)

    def matches(self, where: Mapping[str, Any]) -> bool:
        """True where every field equals the wanted value, or contains it if the field is a list.

        >>> Row({"sources": ["a", "b"], "ok": True}, "f:1").matches({"sources": "b", "ok": True})
        True
        """
        for key, wanted in where.items():
            found = self.values.get(key)
            if not (wanted in found if isinstance(found, list) else found == wanted):
                return False
        return True


def read_rows(path: Path) -> Iterator[Row]:
    """The objects of a JSON lines file, one at a time; blank lines are skipped.

    Raises:
        CorpusError: the file is missing, is no gzip, breaks off, or has a line that is no JSON object in UTF-8.
    """
    if not path.is_file():
        raise CorpusError(f"{path} is missing; set download in params.yaml to files that exist")
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as handle:
            for number, line in enumerate(handle, 1):
                if line.strip():
                    yield Row(_parse(line, f"{path}:{number}", first=number == 1), f"{path}:{number}")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{path}: damaged gzip after line {number} ({error}); fetch the file again") from None


def _parse(line: bytes, place: str, *, first: bool) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig" if first else "utf-8"))
    except UnicodeDecodeError:
        raise CorpusError(f"{place}: not UTF-8; convert the file to UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{place}: not JSON ({error}); expected one object a line") from None
    if not isinstance(row, dict):
        raise CorpusError(f"{place}: a JSON {type(row).__name__}; expected one object a line")
    return row


def passage_of(row: Row) -> Passage:
    """A passage from ``{id, text, title?}``."""
    title = row.text("title", "passage") if row.values.get("title") else ""
    return Passage(row.text("id", "passage"), row.text("text", "passage"), title)


def question_of(row: Row) -> Question:
    """A question from ``{id, question, answers?, supporting?, context_ids?, type?}``."""
    return Question(
        id=row.text("id", "question"),
        text=row.text("question", "question"),
        answers=row.strings("answers"),
        gold_ids=row.strings("supporting"),
        candidate_ids=row.strings("context_ids"),
        kind=str(row.values.get("type") or ""),
    )


def read_question_file(path: Path) -> Iterator[Question]:
    """The questions of one file of the documented shape."""
    return (question_of(row) for row in read_rows(path))


def read_questions_where(paths: Sequence[str], where: Mapping[str, Any]) -> Iterator[Question]:
    """The questions of several files whose rows match."""
    return (question_of(row) for path in paths for row in read_rows(Path(path)) if row.matches(where))
