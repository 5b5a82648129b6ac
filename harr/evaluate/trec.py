"""Files that every tool of information retrieval reads: a TREC run for every arm, and the judgements (qrels)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from harr.evaluate.rows import Row
from harr.io.files import write_text
from harr.types import Question


def write_runs(
    folder: Path, rows: Mapping[str, Sequence[Sequence[Row]]], questions: Sequence[Question], *, seed: int
) -> list[Path]:
    """Write ``qrels.txt``, and for every run of an arm ``<arm>.run`` and its rows, ``<arm>.jsonl``.

    Of several searches of a question the documents stand in the order in which they came, and once. A run's score is 1
    over the rank: tools order documents by it. The rows have the retriever's own ``scores``, where it has any. White
    space in an id becomes an underscore, since it separates columns.

    Args:
        folder: is made where it is missing.
        rows: question rows per arm, a list for each of its runs.
        questions: those of the rows; their gold is what is judged.
        seed: of the first run; a later one has its seed in its name.

    Returns:
        The run files.
    """
    judged = (
        f"{_column(question.id)} 0 {_column(name)} {grade}\n"
        for question in questions
        for name, grade in question.gold_grades.items()
    )
    write_text(folder / "qrels.txt", "".join(judged))
    written = []
    for arm, by_seed in rows.items():
        for number, run in enumerate(by_seed):
            path = folder / (f"{arm}-{seed + number}.run" if number else f"{arm}.run")
            write_text(path, "".join(_lines(arm, run)))
            write_text(path.with_suffix(".jsonl"), "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in run))
            written.append(path)
    return written


def _lines(arm: str, rows: Sequence[Row]) -> list[str]:
    """Return the lines of a run: question, Q0, document, rank, score, arm.

    >>> _lines("bm25", [{"id": "q 1", "ranked": ["a", "b"]}])
    ['q_1 Q0 a 1 1.000000 bm25\\n', 'q_1 Q0 b 2 0.500000 bm25\\n']
    """
    return [
        f"{_column(row['id'])} Q0 {_column(name)} {rank} {1 / rank:.6f} {arm}\n"
        for row in rows
        for rank, name in enumerate(row.get("ranked", ()), 1)
    ]


def _column(name: str) -> str:
    return "_".join(name.split())
