"""MedQuAD: the official XML files or JSON lines, gathered by document on disk, then cut into chunks.

Several questions share a page, and their rows need not stand together; so rows are first put into a small database
beside the corpus, which then gives them out document by document. Memory holds one document at a time.
"""

import hashlib
import random
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

from tqdm import tqdm

from harr.datasets.chunks import CHUNK, Spans, chunks, prefix
from harr.datasets.scrape import Pages, scrape
from harr.datasets.source import Source
from harr.errors import CorpusError
from harr.io.jsonl import Row, read_rows
from harr.params.download import MedQuADParams
from harr.types import Passage, Question, document_of

TABLES = """
pragma journal_mode = off; pragma synchronous = off;
create table row (place text, id text unique, document text, question text, answer text, kind text, split text);
create index row_document on row (document);
create table document (id text primary key, url text, title text, known text);
create table chunk (hash blob primary key, id text);
create table holds (document text, chunk text);
create index holds_document on holds (document);
"""


@dataclass(frozen=True, slots=True)
class Item:
    """One question and its answer as they stand in a file; ``known``: category, semantic group, synonyms."""

    place: str
    id: str
    question: str
    answer: str
    kind: str
    url: str
    title: str
    known: tuple[str, ...]


def medquad(params: MedQuADParams, spans: Spans, staging: Path | None) -> Source:
    """Return the documents of MedQuAD as chunks, and its questions with the chunks of their document as gold.

    Chunks of equal title and text are one passage. A document all of whose chunks stand elsewhere has the document
    that holds most of them as its gold. ``staging`` is made anew, and holds the rows; None: a file that SQLite deletes.

    Raises:
        CorpusError: a folder or file is missing or damaged, or a question stands twice.
    """
    figures: dict[str, float] = {}
    if staging:
        staging.parent.mkdir(parents=True, exist_ok=True)
        staging.unlink(missing_ok=True)
    database = sqlite3.connect(staging or "", isolation_level=None)
    database.executescript(TABLES)
    with database:
        database.execute("begin")
        figures |= _gather(params, database)
    if params.root:
        _split(database, params.test_share, params.seed)
    return Source(
        passages=_passages(params, database, spans, figures),
        train=_questions(database, "train"),
        test=_questions(database, "test"),
        figures=figures,
    )


def _gather(params: MedQuADParams, database: sqlite3.Connection) -> dict[str, float]:
    """Put all rows with an answer into the database; returns counts."""
    rows = unanswered = 0
    again: list[str] = []
    for split, items in _files(params):
        for item in items:
            rows += 1
            if not item.answer:
                unanswered += 1
                continue
            name = _free(database, item)
            again += [f"{item.id} at {item.place}"] if name != item.id else []
            whole = name if params.documents == "answer" else hashlib.sha256(item.url.encode()).hexdigest()[:12]
            values = (item.place, name, whole, item.question, item.answer, item.kind, split)
            database.execute("insert into row values (?, ?, ?, ?, ?, ?, ?)", values)
            known = "\n".join(item.known)
            database.execute("insert or ignore into document values (?, ?, ?, ?)", (whole, item.url, item.title, known))
    if again:
        tqdm.write(f"question ids that another question has: {len(again)}, first {again[0]}; they were given a number")
    if rows == unanswered:
        raise CorpusError(f"download: none of {rows} medquad rows has an answer; check the files that download names")
    return {"rows": float(rows), "rows_without_answer": float(unanswered), "ids_given_a_number": float(len(again))}


def _free(database: sqlite3.Connection, item: Item) -> str:
    """Return the id of a question; the official files use four of theirs for several questions, which get a number.

    Raises:
        CorpusError: the same question and answer stand twice under one id.
    """
    name, number = item.id, 1
    while found := database.execute("select place, question, answer from row where id = ?", (name,)).fetchone():
        place, question, answer = found
        if (question, answer) == (item.question, item.answer):
            raise CorpusError(
                f"download: medquad question {item.id!r} stands twice, at {place} and {item.place}; "
                "name every file once"
            )
        number += 1
        name = f"{item.id}~{number}"
    return name


def _files(params: MedQuADParams) -> Iterator[tuple[str, Iterable[Item]]]:
    """Yield splits and their rows; those of XML files are told apart later."""
    if not params.root:
        for split, names in (("train", params.train), ("test", params.test)):
            yield split, chain.from_iterable(map(_of_jsonl, names))
        return
    folder = Path(params.root)
    if not folder.is_dir():
        raise CorpusError(f"download: {folder} is no folder; set download.root to the folder of MedQuAD's XML files")
    paths = sorted(folder.rglob("*.xml"))
    if not paths:
        raise CorpusError(f"download: no *.xml under {folder}; set download.root to the folder of MedQuAD's XML files")
    yield "train", chain.from_iterable(_of_xml(path, folder) for path in paths)


def _of_jsonl(name: str) -> Iterator[Item]:
    for row in read_rows(Path(name)):
        known = (_plain(row, "category"), _plain(row, "semantic_group"), *row.strings("synonyms"))
        yield Item(
            place=row.place,
            id=row.text("id", "question"),
            question=row.text("question", "question"),
            answer=_plain(row, "answer"),
            kind=_plain(row, "qtype"),
            url=row.text("url", "question"),
            title=_plain(row, "focus"),
            known=known,
        )


def _plain(row: Row, key: str) -> str:
    """Return a text that may be missing, "" where it is."""
    return row.text(key, "question") if str(row.values.get(key) or "").strip() else ""


def _of_xml(path: Path, root: Path) -> Iterator[Item]:
    """Yield the questions of one official file; their ids begin with the number of the file's folder."""
    try:
        document = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, UnicodeError, ValueError) as error:
        raise CorpusError(f"download: {path} is no XML ({error}); fetch the file again, or remove it") from None
    if document.tag != "Document":
        raise CorpusError(
            f"download: {path} holds <{document.tag}>, expected MedQuAD's <Document>; remove it from root"
        )
    folder = path.parent.relative_to(root).as_posix()
    number = re.match(r"\d+", path.parent.name)
    source = f"{number[0]}-" if number and folder != "." else "" if folder == "." else f"{folder}-"
    known = (_under(document, ".//Category"), _under(document, ".//SemanticGroup"))
    synonyms = tuple(filter(None, (" ".join((part.text or "").split()) for part in document.iter("Synonym"))))
    for place, pair in enumerate(document.iter("QAPair"), 1):
        asked = pair.find("Question")
        question = _under(pair, "Question")
        if asked is None or not question:
            raise CorpusError(f"download: {path}: question {place} has no text; mend the file, or remove it")
        yield Item(
            place=f"{path}:{place}",
            id=source + asked.get("qid", f"{document.get('id', path.stem)}-{place}"),
            question=question,
            answer=_under(pair, "Answer"),
            kind=asked.get("qtype", ""),
            url=document.get("url") or path.relative_to(root).as_posix(),
            title=_under(document, "Focus"),
            known=known + synonyms,
        )


def _under(element: ElementTree.Element, path: str) -> str:
    """Return the text of an element, white space folded; "" where there is none."""
    found = element.find(path)
    return "" if found is None else " ".join("".join(found.itertext()).split())


def _split(database: sqlite3.Connection, share: float, seed: int) -> None:
    """Make the questions of a share of the documents test questions."""
    documents = [name for (name,) in database.execute("select id from document order by id")]
    random.Random(seed).shuffle(documents)
    chosen = documents[: max(1, round(share * len(documents)))]
    with database:
        database.execute("begin")
        database.executemany("update row set split = 'test' where document = ?", ((name,) for name in chosen))


def _passages(
    params: MedQuADParams, database: sqlite3.Connection, spans: Spans, figures: dict[str, float]
) -> Iterator[Passage]:
    """Yield the chunks of all documents in the order of the files, each title and text once; what comes twice is
    counted."""
    pages: Pages | None = None
    if params.scrape:
        addresses = (url for (url,) in database.execute("select url from document order by rowid"))
        pages, counts = scrape(addresses, params.scrape)
        figures |= counts
    made = twice = documents = 0
    for name, url, title, known in database.execute("select * from document order by rowid"):
        documents += 1
        text = (pages.text(url) if pages else "") or _answers(database, name)
        line = prefix(known.split("\n")[:2], known.split("\n")[2:], spans, params.chunk_tokens // 4)
        header = f"{line}\n\n" if line else ""
        title = title if len(spans(title)) <= params.chunk_tokens // 4 else ""
        shown = f"{title}: {header}" if title else header
        for number, part in enumerate(chunks(text, spans, params.chunk_tokens, header=shown)):
            made += 1
            passage = Passage(CHUNK.format(document=name, number=number), header + part, title)
            digest = hashlib.sha256(passage.content.encode()).digest()[:16]
            if database.execute("insert or ignore into chunk values (?, ?)", (digest, passage.id)).rowcount:
                yield passage
            else:
                twice += 1
            kept = "insert into holds select ?, id from chunk where hash = ?"
            database.execute(kept, (name, digest))
    if pages:
        pages.close()
    figures |= {"documents": float(documents), "chunks": float(made), "equal_chunks_left_out": float(twice)}


def _answers(database: sqlite3.Connection, document: str) -> str:
    """Return the answers of a document, each once, in the order of the files."""
    found = database.execute("select answer from row where document = ? order by rowid", (document,))
    return " ".join(dict.fromkeys(answer for (answer,) in found))


def _questions(database: sqlite3.Connection, split: str) -> Iterator[Question]:
    """Yield the questions of a split; to be read when all passages were."""
    wanted = "select id, question, answer, document, kind from row where split = ? order by rowid"
    for name, text, answer, document, kind in database.execute(wanted, (split,)):
        held = database.execute(
            "select chunk from holds where document = ? group by chunk order by min(rowid)", (document,)
        )
        yield Question(name, text, (answer,), _gold(document, [chunk for (chunk,) in held]), kind=kind)


def _gold(document: str, held: Sequence[str]) -> tuple[str, ...]:
    """Return the chunks of one document: its own, or where all stand elsewhere those of the document that has most of
    them.

    >>> _gold("b", ["a_chunk_1", "b_chunk_1"]), _gold("b", ["c_chunk_0", "a_chunk_1", "a_chunk_2"])
    (('b_chunk_1',), ('a_chunk_1', 'a_chunk_2'))
    """
    homes = [document_of(chunk) for chunk in held]
    home = document if document in homes else max(homes, key=homes.count, default="")
    return tuple(chunk for chunk, place in zip(held, homes, strict=True) if place == home)
