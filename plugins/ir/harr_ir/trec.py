"""Files that every information retrieval tool reads: a TREC run for every arm, and the judgements (qrels)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harr.corpus.passages import read_questions
from harr.errors import DamagedFile
from harr.io.files import read_jsonl, write_text


def write_runs(folder: Path, evaluation: Path, questions: Path) -> list[Path]:
    """Write ``qrels.txt`` and, for every run of an arm, ``<arm>.run``; return the run files.

    If a question has several searches, its documents are in order of appearance, each once. A run's score is 1 over the
    rank, since tools order documents by score. White space in an id becomes an underscore, since it separates columns.

    Args:
        folder: created if missing.
        evaluation: folder of stage evaluate with the question rows of every run, ``<arm>.jsonl``.
        questions: file of the test questions; the gold of those that were played is the judgements.

    Raises:
        DamagedFile: there is no evaluation.
    """
    if not (evaluated := sorted(evaluation.glob("*.jsonl"))):
        raise DamagedFile(f"{evaluation} holds no rows; run `dvc repro evaluate`")
    written: list[Path] = []
    played: set[str] = set()
    for path in evaluated:
        rows = read_jsonl(path)
        played.update(row["id"] for row in rows)
        written.append(folder / f"{path.stem}.run")
        write_text(written[-1], "".join(_lines(path.stem, rows)))
    judged = (
        f"{_column(question.id)} 0 {_column(name)} {grade}\n"
        for question in read_questions(questions)
        if question.id in played  # tools give a judged question that no run has 0
        for name, grade in question.gold_grades.items()
    )
    write_text(folder / "qrels.txt", "".join(judged))
    return written


def _lines(name: str, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a run: question, Q0, document, rank, score, name of the run.

    >>> _lines("bm25", [{"id": "q 1", "ranked": ["a", "b"]}])
    ['q_1 Q0 a 1 1.000000000 bm25\\n', 'q_1 Q0 b 2 0.500000000 bm25\\n']
    """
    return [
        f"{_column(row['id'])} Q0 {_column(document)} {rank} {1 / rank:.9f} {name}\n"
        for row in rows
        for rank, document in enumerate(row.get("ranked", ()), 1)
    ]


def _column(name: str) -> str:
    return "_".join(name.split())
