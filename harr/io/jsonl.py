"""JSON Lines, plain or gzipped, and Parquet: rows with their place in a file."""

import gzip
import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from harr.errors import CorpusError, one_line
from harr.io.folders import FETCH, is_pointer

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Control characters, which would act on a terminal."""
HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""JSON escapes of surrogates: halves of a character beyond the first 65,536."""
UNSEEN = re.compile("[\u200b\u2060\ufeff]")
"""Zero-width characters that no word needs."""
IDS = ("id", "_id", "uid")
"""Keys of ids, which join rows of files from different programs."""
UNPACK = "unpack it, or pack it by gzip as .jsonl.gz"
HEADS = {
    b"\x1f\x8b": "packed by gzip; let its name end in .gz",
    b"\x28\xb5\x2f\xfd": f"packed by zstd; {UNPACK}",
    b"BZh": f"packed by bzip2; {UNPACK}",
    b"\xfd7zXZ": f"packed by xz; {UNPACK}",
    b"PK\x03\x04": f"packed by zip; {UNPACK}",
    b"PAR1": "a table of parquet; let its name end in .parquet",
    b"ARROW1": "a table of Arrow; write its rows as .parquet",
    b"\xff\xff\xff\xff": "a table of Arrow; write its rows as .parquet",
    b"[": "a list, not an object a line; let its name end in .json",
    b"<": "a page of HTML or XML; fetch the file again",
}
"""What is wrong with a file that begins with these bytes instead of an object, and what to do."""
TABLES = (".csv", ".tsv", ".xlsx")
LONGEST = 64 << 20
"""Maximum bytes of a line: a small gzip file may contain one of gigabytes."""


def fold(text: str) -> str:
    """Return a trimmed text with each run of white space and control characters folded to a space.

    >>> fold(" in vitro\\x96 4\\n")
    'in vitro 4'
    """
    return " ".join((text if text.isprintable() else CONTROL.sub(" ", text)).split())


def fold_id(text: str) -> str:
    """Return an id folded by :func:`fold`, composed (NFC), and without zero-width characters.

    >>> fold_id("e\u0301t\u00e9\u200b ") == "\u00e9t\u00e9"
    True
    """
    return fold(UNSEEN.sub("", unicodedata.normalize("NFC", text)))


def _digits(value: Any) -> Any:
    """Return the digits of an integer, as pandas may write ids; anything else unchanged."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


@dataclass(frozen=True, slots=True)
class Row:
    """One object of a file and its ``place``, ``file:line``."""

    values: Mapping[str, Any]
    place: str

    def text(self, key: str, kind: str) -> str:
        """Return the non-empty string or integer under ``key``, white space and control characters folded to a space.

        Raises:
            CorpusError: it is missing or something else; names the place, the key, its value and type.
        """
        value = _digits(self.values.get(key))
        folded = (fold_id if key in IDS else fold)(value) if isinstance(value, str) else ""
        if not folded:
            what = "is missing" if value is None else f"is {repr(value)[:40]}, a {type(value).__name__}"
            raise CorpusError(f"{self.place}: {kind} without {key} ({key} {what}); expected a non-empty string")
        return folded

    def strings(self, key: str) -> tuple[str, ...]:
        """Return the list of strings or integers under ``key``; empty if it is absent.

        Raises:
            CorpusError: it is something else.
        """
        value = self.values.get(key) or []
        parts: list[Any] = list(map(_digits, value)) if isinstance(value, list) else [None]
        if not all(isinstance(part, str) for part in parts):
            raise CorpusError(f"{self.place}: {key} is {repr(value)[:60]}; expected a list of strings")
        return tuple(parts)

    def ids(self, key: str) -> tuple[str, ...]:
        """Return the list of ids under ``key``, folded as :meth:`text` folds ids."""
        return tuple(map(fold_id, self.strings(key)))

    def matches(self, where: Mapping[str, Any]) -> bool:
        """Return whether every field equals the expected value, or contains it if the field is a list.

        >>> Row({"sources": ["a", "b"], "ok": True}, "f:1").matches({"sources": "b", "ok": True})
        True
        """
        for key, expected in where.items():
            value = self.values.get(key)
            if not (expected in value if isinstance(value, list) else value == expected):
                return False
        return True


def _refuse(error: CorpusError) -> None:
    raise error


def read_rows(path: Path, leave_out: Callable[[CorpusError], None] = _refuse) -> Iterator[Row]:
    """Yield the objects of a JSON Lines file, one at a time (blank lines are skipped), of the list in a ``.json`` file,
    or of the table in a ``.parquet`` file.

    ``leave_out`` is called with the error of every line that is not an object; by default the first one is raised.

    Raises:
        CorpusError: the file is missing, is not gzip, is truncated, or has a line that is not a JSON object in UTF-8 or
            is longer than LONGEST.
    """
    if not path.is_file():
        what = "is no file" if path.exists() else "is missing"
        raise CorpusError(f"{path} {what}; name a file that is there, in section download or by --questions")
    if is_pointer(path):
        raise CorpusError(f"{path}: {FETCH}")
    if path.name.removesuffix(".gz").endswith(TABLES):
        raise CorpusError(f"{path}: a table; write its rows as JSON lines (.jsonl), an object a line, or as .parquet")
    if path.name.removesuffix(".gz").endswith(".json"):
        yield from _read_list(path, leave_out)
        return
    if path.suffix == ".parquet":
        yield from _read_table(path)
        return
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as handle:
            for number, line in enumerate(iter(partial(handle.readline, LONGEST + 1), b""), 1):
                if len(line) > LONGEST:
                    message = f"a line of more than {LONGEST >> 20} MiB; expected one object a line"
                    raise CorpusError(f"{path}:{number}: {message}")
                if line.strip():
                    try:
                        row = Row(_parse(line, f"{path}:{number}", first=number == 1), f"{path}:{number}")
                    except CorpusError as error:
                        leave_out(error)
                    else:
                        yield row
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{path}: damaged gzip after line {number} ({error}); fetch the file again") from None


def _read_table(path: Path) -> Iterator[Row]:
    """Yield the rows of a Parquet file, a few thousand at a time in memory."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as table:
            batches = (batch.to_pylist() for batch in table.iter_batches(batch_size=4096))
            for number, values in enumerate(chain.from_iterable(batches), 1):
                yield Row(values, f"{path}: row {number}")
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{path}: cannot be read as parquet ({one_line(error)}); fetch the file again") from None


def _read_list(path: Path, leave_out: Callable[[CorpusError], None]) -> Iterator[Row]:
    """Yield the objects of a file that is one JSON list."""
    try:
        values = json.loads((gzip.decompress if path.suffix == ".gz" else bytes)(path.read_bytes()).decode("utf-8-sig"))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(f"{path}: damaged gzip ({error}); fetch the file again") from None
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: not JSON ({error}); name a file with an object a line .jsonl") from None
    if not isinstance(values, list):
        kind = type(values).__name__
        raise CorpusError(f"{path}: a JSON {kind}; expected a list of objects, or JSON lines in a .jsonl")
    for number, value in enumerate(values, 1):
        try:
            if not isinstance(value, dict):
                raise CorpusError(f"{path}: row {number} is a JSON {type(value).__name__}; expected an object")
            row = Row(_check_characters(value, f"{path}: row {number}"), f"{path}: row {number}")
        except CorpusError as error:
            leave_out(error)
        else:
            yield row


def _parse(line: bytes, place: str, *, first: bool) -> dict[str, Any]:
    if other := next((what for head, what in HEADS.items() if first and line.startswith(head)), ""):
        raise CorpusError(f"{place}: {other}")
    try:
        row = json.loads(line.decode("utf-8-sig" if first else "utf-8"))
    except UnicodeDecodeError:
        raise CorpusError(f"{place}: not UTF-8; convert the file to UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{place}: not JSON ({error}); expected one object a line") from None
    if not isinstance(row, dict):
        raise CorpusError(f"{place}: a JSON {type(row).__name__}; expected one object a line")
    return _check_characters(row, place) if HALF.search(line) else row


def _check_characters(row: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the row, unless one of its strings has half a character, which cannot be encoded."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"{ord(error.object[error.start]):04x}"
        raise CorpusError(f"{place}: half a character (\\u{half}); its text was cut in the middle of one") from None
    return row
