"""Corpora with judgements: folders in BEIR's layout (arXiv 2104.08663), and what ir_datasets knows by a name."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harr.corpus.sample import draw_questions
from harr.datasets.source import Source
from harr.datasets.splits import rows_to_read
from harr.errors import CorpusError, one_line
from harr.io.jsonl import Row, fold, read_rows
from harr.params.download import BeirParams, IrDatasetsParams, JudgedParams
from harr.types import Passage, Question

Judgements = dict[str, dict[str, int]]
"""The grade of every judged passage, by question and passage."""
Split = Callable[[str], tuple[Mapping[str, str], Judgements]]
"""What gives the texts of the questions of a split, and their judgements."""


def beir(params: BeirParams) -> Source:
    """Open ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv`` of a folder, the first two plain or gzipped.

    The hub keeps judgements in a repository of their own, ``<name>-qrels``; beside the folder they are found, too.
    """
    root = Path(params.root)
    queries = {row.text("_id", "query"): row.text("text", "query") for row in read_rows(_one_of(root, "queries"))}
    rows = read_rows(_one_of(root, "corpus"))
    texts = ((row.text("_id", "passage"), _text(row, "title"), _text(row, "text")) for row in rows)
    return _source(params, texts, lambda name: (queries, _read_qrels(root, name)))


def ir_datasets(params: IrDatasetsParams) -> Source:
    """Open a data set of the package ir_datasets, which fetches it and keeps it in a folder of its own.

    Raises:
        CorpusError: there is no such data set, it lacks questions or judgements, or it cannot be fetched.
    """
    import ir_datasets as library

    def opened(name: str) -> Any:
        try:
            return library.load(name)
        except KeyError:
            raise CorpusError(f"download: {name} is no data set of ir_datasets; `ir_datasets list` names all") from None

    def split(name: str) -> tuple[dict[str, str], Judgements]:
        found = opened(name)
        if not (found.has_queries() and found.has_qrels()):
            raise CorpusError(f"download: {name} of ir_datasets has no judged queries; take one of its parts that has")
        judged: Judgements = {}
        for one in _fetched(found.qrels_iter, name):
            judged.setdefault(one.query_id, {})[one.doc_id] = int(one.relevance)
        return {query.query_id: query.default_text() for query in _fetched(found.queries_iter, name)}, judged

    opened(params.train)  # a wrong name is told before anything is fetched
    documents = _fetched(opened(params.test).docs_iter, params.test)
    texts = (
        (one.doc_id, getattr(one, "title", ""), getattr(one, "text", "") or one.default_text()) for one in documents
    )
    return _source(params, texts, split)


def _source(params: JudgedParams, texts: Iterator[tuple[str, str, str]], split: Split) -> Source:
    left_out: list[str] = []
    figures: dict[str, float] = {}

    def passages() -> Iterator[Passage]:
        for name, title, text in texts:
            title, text = fold(title), fold(text)
            if title or text:  # what has a title only is that title
                yield Passage(name, text or title, title if text else "")
            else:
                left_out.append(f"passage {name} has neither title nor text")

    def questions(part: str, name: str, count: int) -> Iterator[Question]:
        queries, judged = split(name)
        kept = []
        for qid, grades in judged.items():
            gold = {pid: grade for pid, grade in sorted(grades.items(), key=lambda own: -own[1]) if grade > 0}
            if gold and qid not in queries:
                raise CorpusError(f"download: {name} judges query {qid}, which is not among the queries")
            if gold:
                text = fold(queries[qid])
                kept.append(Question(qid, text, gold_ids=tuple(gold), grades=tuple(gold.values()), kind="judged"))
        figures[f"{part}_queries_without_relevant_passages"] = float(len(judged) - len(kept))
        yield from draw_questions(kept, count, params.seed) if count else kept

    own = questions("validation", params.validation, params.validation_questions) if params.validation else None
    count = params.train_questions if params.validation else rows_to_read(params)
    return Source(
        passages=passages(),
        train=questions("train", params.train, count),
        test=questions("test", params.test, params.test_questions),
        validation=own,
        figures=figures,
        left_out=left_out,
    )


def _one_of(root: Path, name: str) -> Path:
    """Return the file of this name, plain, gzipped or parquet."""
    for path in (root / f"{name}.jsonl", root / f"{name}.jsonl.gz", root / f"{name}.parquet"):
        if path.is_file():
            return path
    raise CorpusError(f"download: no {name}.jsonl in {root}; set download.root to a folder in BEIR's layout")


def _read_qrels(root: Path, split: str) -> Judgements:
    """Read the judgements of a split: query, passage and grade, separated by tabs, under a line of headings.

    Raises:
        CorpusError: there is no file of the split, or a line is none of these.
    """
    folders = root / "qrels", root.with_name(f"{root.name}-qrels")
    path = next((found for folder in folders if (found := folder / f"{split}.tsv").is_file()), None)
    if path is None:
        there = sorted(found.stem for folder in folders for found in folder.glob("*.tsv"))
        what = f"it judges {', '.join(there)}" if there else "there are no judgements"
        raise CorpusError(f"download: no qrels/{split}.tsv in {root}; {what}: see download.train and download.test")
    judged: Judgements = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # other breaks of lines may stand in an id
    except UnicodeDecodeError:
        raise CorpusError(f"{path}: not UTF-8; convert the file to UTF-8") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            query, passage, grade = (fold(part) for part in line.split("\t"))  # ids as rows have them
            if number > 1 or grade != "score":
                judged.setdefault(query, {})[passage] = int(grade)
        except ValueError:
            raise CorpusError(f"{path}:{number}: {line[:60]!r}; expected query-id, corpus-id and score") from None
    return judged


def _text(row: Row, key: str) -> str:
    """Return a text that may be missing or empty."""
    return row.text(key, "passage") if row.values.get(key) else ""


def _fetched(rows: Callable[[], Iterator[Any]], name: str) -> Iterator[Any]:
    """Pass rows on; a file that cannot be had is an error in one line. Some are fetched when they are asked for."""
    try:
        yield from rows()
    except (OSError, RuntimeError, ValueError) as error:
        raise CorpusError(
            f"download: {name} of ir_datasets cannot be read ({one_line(error)}); connect, or put its files where "
            "`ir_datasets` keeps them (IR_DATASETS_HOME)"
        ) from None
