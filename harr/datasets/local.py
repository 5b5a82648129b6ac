"""The user's own files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from reprlib import repr as short
from types import MappingProxyType
from typing import Any

from harr.corpus.sample import draw_questions
from harr.datasets.source import Source
from harr.datasets.splits import rows_to_read
from harr.errors import CorpusError
from harr.io.jsonl import Row, fold_id, read_rows
from harr.params.download import JsonlParams, OwnQuestionsParams
from harr.types import Passage, Question

SOURCE = r"[A-Za-z][A-Za-z0-9_]{0,39}"
"""Pattern for a source's name, which also names a collection."""


def jsonl(params: JsonlParams) -> Source:
    """Open local files; passages that do not match ``searchable_where`` stay out of the index.

    Up to ``bad_passages`` rows that are not valid passages are left out and noted.
    """
    held_back: set[str] = set()
    left_out: list[str] = []
    seen: set[str] = set()

    def leave_out(error: CorpusError) -> None:
        """Note an unusable passage, up to the limit."""
        if not params.bad_passages:
            raise error
        if len(left_out) == params.bad_passages:
            raise CorpusError(f"{error}; {len(left_out)} before it were left out, as many as download.bad_passages")
        left_out.append(str(error))

    def rows() -> Iterator[Row]:
        for path in params.passages:
            yield from (rename_columns(row, params.columns) for row in read_rows(Path(path), leave_out))

    def passages() -> Iterator[Passage]:
        for row in rows():
            try:
                passage = passage_of(row)
                if params.bad_passages and passage.id in seen:
                    raise CorpusError(f"{row.place}: passage id {short(passage.id)} stands twice")
            except CorpusError as error:
                leave_out(error)
                continue
            if params.bad_passages:
                seen.add(passage.id)
            if not row.matches(params.searchable_where):
                held_back.add(passage.id)
            yield passage

    train, validation, test = read_own_questions(params)
    return Source(
        passages=passages(),
        train=train,
        test=test,
        searchable=lambda passage: passage.id not in held_back,
        left_out=left_out,
        validation=validation,
    )


def read_own_questions(
    params: OwnQuestionsParams,
) -> tuple[Iterator[Question], Iterator[Question] | None, Iterator[Question]]:
    """Return the training, validation and test questions in the user's own files; None without a validation file."""
    count = params.train_questions if params.validation else rows_to_read(params)
    rest = params.seed, params.columns
    train = read_questions_where(params.train, params.train_where, count, *rest)
    test = read_questions_where(params.test, params.test_where, params.test_questions, *rest)
    if not params.validation:
        return train, None, test
    validation = read_questions_where(params.validation, {}, params.validation_questions, *rest)
    return train, validation, test


def rename_columns(row: Row, columns: Mapping[str, str]) -> Row:
    """Return a row with our names; ``columns`` maps them to the file's, in which a dot leads into a nested field.

    >>> row = Row({"_id": "q1", "answers": {"text": ["Ada"]}}, "train.parquet: row 1")
    >>> dict(rename_columns(row, {"id": "_id", "answers": "answers.text"}).values)
    {'_id': 'q1', 'answers': ['Ada'], 'id': 'q1'}
    """
    values = {ours: _within(row.values, theirs.split(".")) for ours, theirs in columns.items()}
    return Row({**row.values, **{ours: value for ours, value in values.items() if value is not None}}, row.place)


def _within(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def passage_of(row: Row) -> Passage:
    """Return a passage from ``{id, text, title?, source?}``, or from ``{id, contents}``, whose first line is the title.

    Raises:
        CorpusError: a value is missing or wrong; a source names a collection, hence has only letters, digits and _.
    """
    if "text" not in row.values and isinstance(contents := row.values.get("contents"), str):
        head, _, body = contents.partition("\n")  # FlashRAG's and Search-R1's format
        row = Row({**row.values, "title": head.strip(' "'), "text": body}, row.place)
    title = row.text("title", "passage") if row.values.get("title") else ""
    source = row.text("source", "passage") if row.values.get("source") else ""
    if source and not re.fullmatch(SOURCE, source):
        raise CorpusError(f"{row.place}: source is {source[:50]!r}; expected a name of 1 to 40 letters, digits and _")
    return Passage(row.text("id", "passage"), row.text("text", "passage"), title, source)


def question_of(row: Row) -> Question:
    """Return a question from ``{id, question, answers? or answer?, supporting?, context_ids?, type?, level?}`` and, if
    its data set has several settings, ``setting`` or ``labels``.

    ``grades``, ``{passage id: grade}``, grades the gold passages, or names them if there is no ``supporting``; grade
    0 means not gold. ``golden_answers`` are answers, too.
    """
    only = (row.text("answer", "question"),) if "answer" in row.values and "answers" not in row.values else ()
    grades = _grades(row)
    gold_ids = row.ids("supporting") or tuple(grades)
    if grades and set(gold_ids) != set(grades):
        odd = sorted(set(gold_ids) ^ set(grades))[0]
        raise CorpusError(f"{row.place}: {short(odd)} is in one of supporting and grades; grade every gold passage")
    return Question(
        id=row.text("id", "question"),
        text=row.text("question", "question"),
        answers=only or row.strings("answers") or row.strings("golden_answers"),
        gold_ids=gold_ids,
        grades=tuple(grades[name] for name in gold_ids) if grades else (),
        candidate_ids=row.ids("context_ids"),
        kind=str(row.values.get("type") or ""),
        level=str(row.values.get("level") or ""),
        setting=next((name for key in ("setting", "labels") if isinstance(name := row.values.get(key), str)), ""),
    )


def _grades(row: Row) -> dict[str, int]:
    """Return the relevant passages with their grades, the best first."""
    grades = row.values.get("grades") or {}
    if not isinstance(grades, dict) or not all(type(grade) is int for grade in grades.values()):
        raise CorpusError(f"{row.place}: grades is {str(grades)[:60]!r}; expected {{passage id: whole number}}")
    return {fold_id(name): grade for name, grade in sorted(grades.items(), key=lambda item: -item[1]) if grade > 0}


def read_question_file(path: Path) -> Iterator[Question]:
    """Return the questions in one file of the documented format."""
    return (question_of(row) for row in read_rows(path))


def read_questions_where(
    paths: Sequence[str],
    where: Mapping[str, Any],
    limit: int = 0,
    seed: int = 0,
    columns: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Question]:
    """Yield ``limit`` (0: all) questions from several files whose rows match, drawn by ``seed``; ``columns``: see
    :func:`rename_columns`.

    Files in different folders count as different data sets: their questions' settings begin with the folder's name.

    Raises:
        CorpusError: a row has no id, question or answer, or a repeated id; names its place.
    """
    questions = _matching(paths, where, columns)
    yield from draw_questions(list(questions), limit, seed) if limit else questions


def _matching(paths: Sequence[str], where: Mapping[str, Any], columns: Mapping[str, str]) -> Iterator[Question]:
    """Yield the questions of all matching rows, with their settings."""
    places: dict[str, str] = {}
    several = len({Path(path).parent for path in paths}) > 1
    for path in paths:
        for row in (rename_columns(row, columns) for row in read_rows(Path(path))):
            if not row.matches(where):
                continue
            question = question_of(row)
            if not question.answers and not question.gold_ids:
                raise CorpusError(
                    f"{row.place}: question {short(question.id)} has neither answers nor supporting passages; "
                    "give answer (a string) or answers (a list)"
                )
            first = places.setdefault(question.id, row.place)
            if first != row.place:
                raise CorpusError(f"{row.place}: question id {short(question.id)} stands twice, first at {first}")
            folder = Path(path).resolve().parent.name if several else ""
            yield replace(question, setting=f"{folder} {question.setting}".strip())
