"""MedQuAD: the official XML files or JSON lines, grouped by document, then cut into chunks.

Several questions share a page, and their rows need not be adjacent, so all rows are read before a document is cut.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from xml.etree import ElementTree

from harr_documents.chunks import Spans, chunks
from tqdm import tqdm

from harr.datasets import Dataset
from harr.datasets.source import Source
from harr.errors import CorpusError
from harr.io.jsonl import Row, read_rows
from harr.types import CHUNK, Passage, Question, document_of
from harr_medquad.scrape import Pages, scrape
from harr_medquad.settings import MedQuADParams


@dataclass(frozen=True, slots=True)
class Item:
    """A question and its answer from a file; ``facts``: category, semantic group, synonyms."""

    place: str
    id: str
    question: str
    answer: str
    kind: str
    url: str
    title: str
    facts: tuple[str, ...]
    document: str = ""
    split: str = "train"


def medquad(params: MedQuADParams) -> Source:
    """Return the documents of MedQuAD as chunks, and its questions with the chunks of their document as gold.

    Chunks with the same title and text are one passage. If all chunks of a document are elsewhere, its gold is the
    document with most of them.

    Raises:
        CorpusError: a folder or file is missing or damaged, or a question occurs twice.
    """
    items, figures = _gather(params)
    documents: dict[str, list[Item]] = {}
    for item in items:
        documents.setdefault(item.document, []).append(item)
    if params.root:
        names = sorted(documents)
        random.Random(params.seed).shuffle(names)
        test_names = set(names[: max(1, round(params.test_share * len(names)))])
        items = [replace(item, split="test") if item.document in test_names else item for item in items]
    if params.validation_questions:
        items = _with_validation(items, params.validation_questions, params.seed)
    chunk_ids: dict[str, list[str]] = {}

    def questions(split: str) -> Iterator[Question]:
        for item in items:
            if item.split == split:
                gold = _gold_chunks(item.document, chunk_ids[item.document])
                yield Question(item.id, item.question, (item.answer,), gold, kind=item.kind)

    passages = _passages(params, documents, chunk_ids, figures)
    return Source(
        passages=passages,
        train=questions("train"),
        test=questions("test"),
        figures=figures,
        validation=questions("validation") if params.validation_questions else None,
    )


def _with_validation(items: Sequence[Item], count: int, seed: int) -> list[Item]:
    """Return the questions, with those of some training documents as validation questions: ``count`` in all, or
    slightly more because of the last document.

    Raises:
        CorpusError: no training document would be left.
    """
    tested = {item.document for item in items if item.split == "test"}
    sizes = Counter(item.document for item in items if item.document not in tested)
    names = sorted(sizes)
    random.Random(f"{seed}/validation").shuffle(names)
    before = accumulate((sizes[name] for name in names), initial=0)
    chosen = {name for name, questions in zip(names, before, strict=False) if questions < count}
    if len(chosen) == len(names):
        raise CorpusError(
            f"download.validation_questions {count} leaves no training document of {len(names)}; lower it"
        )
    return [replace(item, split="validation") if item.document in chosen else item for item in items]


def _gather(params: MedQuADParams) -> tuple[list[Item], dict[str, float]]:
    """Return all rows with an answer, each with its own id and its document, and counts.

    The official files use four of their ids for several questions, which get a number.

    Raises:
        CorpusError: the same question and answer occur twice under one id, or no row has an answer.
    """
    by_id: dict[str, Item] = {}
    rows = 0
    twice: list[str] = []
    for item in _files(params):
        rows += 1
        if not item.answer:
            continue
        name, number = item.id, 1
        while other := by_id.get(name):
            if (other.question, other.answer) == (item.question, item.answer):
                raise CorpusError(
                    f"download: medquad question {item.id!r} stands twice, at {other.place} and {item.place}; "
                    "name every file once"
                )
            number += 1
            name = f"{item.id}~{number}"
        twice += [f"{item.id} at {item.place}"] if name != item.id else []
        whole = name if params.documents == "answer" else hashlib.sha256(item.url.encode()).hexdigest()[:12]
        by_id[name] = replace(item, id=name, document=whole)
    if twice:
        tqdm.write(f"question ids that another question has: {len(twice)}, first {twice[0]}; they were given a number")
    if not by_id:
        raise CorpusError(f"download: none of {rows} medquad rows has an answer; check the files that download names")
    unanswered = float(rows - len(by_id))
    return list(by_id.values()), {
        "rows": float(rows),
        "rows_without_answer": unanswered,
        "ids_given_a_number": float(len(twice)),
    }


def _files(params: MedQuADParams) -> Iterator[Item]:
    """Yield the rows of all files; the test questions among those of XML files are chosen later."""
    if not params.root:
        for split, names in (("train", params.train), ("test", params.test)):
            yield from (replace(item, split=split) for name in names for item in _of_jsonl(name))
        return
    folder = Path(params.root)
    if not folder.is_dir():
        raise CorpusError(
            f"download: {folder} is no folder; set download.settings.root to the folder of MedQuAD's XML files"
        )
    paths = sorted(folder.rglob("*.xml"))
    if not paths:
        raise CorpusError(
            f"download: no *.xml under {folder}; set download.settings.root to the folder of MedQuAD's XML files"
        )
    yield from chain.from_iterable(_of_xml(path, folder) for path in paths)


def _of_jsonl(name: str) -> Iterator[Item]:
    for row in read_rows(Path(name)):
        facts = (_optional_text(row, "category"), _optional_text(row, "semantic_group"), *row.strings("synonyms"))
        yield Item(
            place=row.place,
            id=row.text("id", "question"),
            question=row.text("question", "question"),
            answer=_optional_text(row, "answer"),
            kind=_optional_text(row, "qtype"),
            url=row.text("url", "question"),
            title=_optional_text(row, "focus"),
            facts=facts,
        )


def _optional_text(row: Row, key: str) -> str:
    """Return a text that may be missing, then ""."""
    return row.text(key, "question") if str(row.values.get(key) or "").strip() else ""


def _of_xml(path: Path, root: Path) -> Iterator[Item]:
    """Yield the questions of one official file; their ids start with the number of the file's folder."""
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
    facts = (_under(document, ".//Category"), _under(document, ".//SemanticGroup"))
    synonyms = tuple(filter(None, (" ".join((part.text or "").split()) for part in document.iter("Synonym"))))
    for place, pair in enumerate(document.iter("QAPair"), 1):
        element = pair.find("Question")
        question = _under(pair, "Question")
        if element is None or not question:
            raise CorpusError(f"download: {path}: question {place} has no text; mend the file, or remove it")
        yield Item(
            place=f"{path}:{place}",
            id=source + element.get("qid", f"{document.get('id', path.stem)}-{place}"),
            question=question,
            answer=_under(pair, "Answer"),
            kind=element.get("qtype", ""),
            url=document.get("url") or path.relative_to(root).as_posix(),
            title=_under(document, "Focus"),
            facts=facts + synonyms,
        )


def _under(element: ElementTree.Element, path: str) -> str:
    """Return the text of an element, white space folded; "" if it is missing."""
    child = element.find(path)
    return "" if child is None else " ".join("".join(child.itertext()).split())


def _passages(
    params: MedQuADParams,
    documents: Mapping[str, Sequence[Item]],
    chunk_ids: dict[str, list[str]],
    figures: dict[str, float],
) -> Iterator[Passage]:
    """Yield the chunks of all documents in file order, each title and text once; repeats are counted. ``chunk_ids``
    gets those of every document."""
    pages: Pages | None = None
    if params.scrape:
        pages, counts = scrape((items[0].url for items in documents.values()), params.scrape)
        figures |= counts
    from harr_documents.tokens import token_spans  # loads transformers

    spans = token_spans(params.tokenizer)
    first: dict[bytes, str] = {}
    count = 0
    limit = params.chunk_tokens // 4
    for name, items in documents.items():
        url, title, facts = items[0].url, items[0].title, items[0].facts
        text = (pages.text(url) if pages else "") or " ".join(dict.fromkeys(item.answer for item in items))
        line = prefix(facts[:2], facts[2:], spans, limit)
        header = f"{line}\n\n" if line else ""
        title = title if len(spans(title)) <= limit else ""
        lead = f"{title}: {header}" if title else header
        own_ids: dict[str, None] = {}
        for number, part in enumerate(chunks(text, spans, params.chunk_tokens, header=lead)):
            count += 1
            passage = Passage(CHUNK.format(document=name, number=number), header + part, title)
            digest = hashlib.sha256(passage.content.encode()).digest()[:16]
            if digest not in first:
                first[digest] = passage.id
                yield passage
            own_ids[first[digest]] = None
        chunk_ids[name] = list(own_ids)
    if pages:
        pages.close()
    figures |= {
        "documents": float(len(documents)),
        "chunks": float(count),
        "equal_chunks_left_out": float(count - len(first)),
    }


def _gold_chunks(document: str, chunk_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the chunks of one document: its own or, if all are elsewhere, those of the document with most of them.

    >>> _gold_chunks("b", ["a_chunk_1", "b_chunk_1"]), _gold_chunks("b", ["c_chunk_0", "a_chunk_1", "a_chunk_2"])
    (('b_chunk_1',), ('a_chunk_1', 'a_chunk_2'))
    """
    homes = [document_of(chunk) for chunk in chunk_ids]
    home = document if document in homes else max(homes, key=homes.count, default="")
    return tuple(chunk for chunk, place in zip(chunk_ids, homes, strict=True) if place == home)


def prefix(fields: Sequence[str], synonyms: Sequence[str], spans: Spans, limit: int) -> str:
    """Return the first line of a document's chunks: fields and up to three synonyms.

    Empty ones are left out, as are the last ones if the line would have more than ``limit`` tokens.

    >>> for limit in (99, 4):
    ...     prefix(["Disease", "", "Disorders"], ["AML", "ANLL", "c", "d"], lambda text: text.split(), limit)
    'Disease | Disorders | AML | ANLL | c'
    'Disease | Disorders'
    """
    parts = [part for part in (*fields, *synonyms[:3]) if part]
    while parts and len(spans(" | ".join(parts))) > limit:
        parts.pop()
    return " | ".join(parts)


def _origin(params: MedQuADParams) -> str:
    return f"MedQuAD's {params.documents}s, from {params.root or ', '.join((*params.train, *params.test))}"


DATASET = Dataset(
    medquad,
    _origin,
    preview=lambda params: medquad(params.model_copy(update={"scrape": None})),
    settings=MedQuADParams,
)
