"""Stage download in the current folder, with its input and output files."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from harr.corpus.passages import Passages, read_questions
from harr.datasets.download import download
from harr.types import Passage, Question


def write_rows(path: str | Path, rows: Iterable[Any]) -> str:
    """Write a JSON value per line (bytes as they are), gzipped if the name ends in .gz, or parquet; return the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(list(rows)), path)
        return str(path)
    lines = (row if isinstance(row, bytes) else json.dumps(row, ensure_ascii=False).encode() for row in rows)
    data = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def run(section: Any) -> dict[str, float]:
    return download(section, Path("data/corpus"), Path("data/questions"), Path("work/download"))


def questions(split: str) -> list[Question]:
    return list(read_questions(Path(f"data/questions/{split}.jsonl")))


def passages() -> list[Passage]:
    stored = Passages.open(Path("data/corpus"))
    return stored.take(range(len(stored)))


def gold_titles(question: Question) -> list[str]:
    title_of = {passage.id: passage.title for passage in passages()}
    return [title_of[pid] for pid in question.gold_ids]
