"""Folders in BEIR's layout (arXiv 2104.08663)."""

from pathlib import Path

from harr.datasets import Dataset
from harr.datasets.source import Source
from harr.errors import CorpusError
from harr.io.jsonl import Row, fold_id, read_rows
from harr.params.fields import PathOrName
from harr_ir.judged import JudgedParams, Judgements, open_judged


class BeirParams(JudgedParams):
    """A folder in BEIR's layout: corpus.jsonl, queries.jsonl and qrels."""

    root: PathOrName
    """Folder with corpus.jsonl, queries.jsonl (plain, gzipped or parquet) and qrels; of the hub's two repositories, the
    one with the corpus, with the other (<name>-qrels) next to it."""


def open_folder(params: BeirParams) -> Source:
    """Open ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv`` of a folder; see :class:`BeirParams`.

    The hub keeps judgements in their own repository, ``<name>-qrels``; it is also found next to the folder.
    """
    root = Path(params.root)
    queries = {row.text("_id", "query"): row.text("text", "query") for row in read_rows(_one_of(root, "queries"))}
    rows = read_rows(_one_of(root, "corpus"))
    texts = ((row.text("_id", "passage"), _text(row, "title"), _text(row, "text")) for row in rows)
    return open_judged(params, texts, lambda name: (queries, _read_qrels(root, name)))


def _one_of(root: Path, name: str) -> Path:
    """Return the file of this name, plain, gzipped or parquet."""
    for path in (root / f"{name}.jsonl", root / f"{name}.jsonl.gz", root / f"{name}.parquet"):
        if path.is_file():
            return path
    raise CorpusError(f"download: no {name}.jsonl in {root}; set download.settings.root to a folder in BEIR's layout")


def _read_qrels(root: Path, split: str) -> Judgements:
    """Read the judgements of a split: query, passage and grade, separated by tabs, or by spaces as in TREC's files,
    which have a column after the query; the first line may have headings.

    Raises:
        CorpusError: there is no file of the split, or a line is none of these.
    """
    whole = root.absolute()  # "." has no name; where a link points, the other repository need not be
    folders = root / "qrels", whole.with_name(f"{whole.name}-qrels")
    path = next((found for folder in folders if (found := folder / f"{split}.tsv").is_file()), None)
    if path is None:
        there = sorted(found.stem for folder in folders for found in folder.glob("*.tsv"))
        what = f"it judges {', '.join(there)}" if there else "there are no judgements"
        raise CorpusError(f"download: no qrels/{split}.tsv in {root}; {what}: see train and test of download.settings")
    judged: Judgements = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # ids may contain other line breaks
    except UnicodeDecodeError:
        raise CorpusError(f"{path}: not UTF-8; convert the file to UTF-8") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        parts = [
            fold_id(part) for part in (line.split("\t") if "\t" in line else line.split())
        ]  # normalises ids as rows do
        if len(parts) not in (3, 4):
            expected = "query-id, corpus-id and score; or query-id, 0, corpus-id and score"
            raise CorpusError(f"{path}:{number}: {line[:60]!r} has {len(parts)} columns; expected {expected}")
        query, passage, score = parts[0], *parts[-2:]
        try:
            grade = float(score)
        except ValueError:
            if number == 1:  # a heading
                continue
            grade = 0.5
        if not grade.is_integer():
            raise CorpusError(f"{path}:{number}: score {score!r}; expected a whole number")
        judged.setdefault(query, {})[passage] = int(grade)
    return judged


def _text(row: Row, key: str) -> str:
    """Return a text that may be missing or empty."""
    return row.text(key, "passage") if row.values.get(key) else ""


DATASET = Dataset(open_folder, lambda params: f"the folder {params.root}, in BEIR's layout", settings=BeirParams)
