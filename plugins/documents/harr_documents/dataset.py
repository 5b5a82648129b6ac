"""A folder of documents as they are, cut into passages under their headings."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harr.characters import states_answer
from harr.datasets import Dataset
from harr.datasets.local import read_own_questions
from harr.datasets.source import Source
from harr.errors import CorpusError
from harr.io.folders import files_below
from harr.io.jsonl import fold_id
from harr.types import Passage, Question
from harr_documents.chunks import Spans, chunks
from harr_documents.markup import KINDS, Part, read_parts
from harr_documents.settings import DocumentsParams

BETWEEN = " > "
"""Separator between the headings in a title."""


def documents(params: DocumentsParams) -> Source:
    """Return the passages of all files in a folder, and the questions of the user's own files.

    A passage belongs to one heading; its title is the path of headings to it. Its id is ``<path>#<hash of its text>``:
    it stays if other parts of the document change, and a changed passage gets another, so no question keeps a gold
    passage that says something else. Instead of ids, a question may name ``<path>`` or ``<path>#<heading>``, since
    passages are read before questions: its gold is the passages there that state its answer, or all of them. A file
    that cannot be read is left out and named.

    Raises:
        CorpusError: the folder is missing, no file in it can be read, or a file of questions is missing.
    """
    figures: dict[str, float] = {}
    left_out: list[str] = []
    places: dict[str, list[Passage]] = defaultdict(list)
    train, validation, test = read_own_questions(params)

    def passages() -> Iterator[Passage]:
        for passage in _passages(params, left_out, figures):
            name, headings = passage.id.rpartition("#")[0], passage.title.split(BETWEEN)
            places[name].append(passage)
            for first in range(len(headings)):  # a heading may contain the separator
                places[fold_id(f"{name}#{BETWEEN.join(headings[first:])}")].append(passage)
            yield passage

    def find_gold(place: str, answers: Sequence[str]) -> list[str]:
        there = places.get(place, ())
        stating = [passage for passage in there if states_answer(passage.text, answers)]
        return [passage.id for passage in stating or there] or [place]

    def require_files(questions: Iterable[Question], split: str, files: Sequence[str]) -> Iterator[Question]:
        for file in files:
            if not Path(file).is_file():
                raise CorpusError(
                    f"download.settings.{split}: {file} is missing; write questions with `harr questions`, or name your own"
                )
        for question in questions:
            gold = (pid for place in question.gold_ids for pid in find_gold(place, question.answers))
            yield question if question.grades else replace(question, gold_ids=tuple(dict.fromkeys(gold)))

    return Source(
        passages=passages(),
        train=require_files(train, "train", params.train),
        test=require_files(test, "test", params.test),
        validation=None if validation is None else require_files(validation, "validation", params.validation),
        figures=figures,
        left_out=left_out,
    )


def _passages(params: DocumentsParams, left_out: list[str], figures: dict[str, float]) -> Iterator[Passage]:
    """Yield the passages of all files in path order, each title and text once.

    ``left_out`` gets a line for each file that could not be read.
    """
    from harr_documents.tokens import token_spans  # loads transformers

    folder = Path(params.folder)
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "is missing"
        raise CorpusError(f"download.settings.folder: {folder} {what}; name the folder of your documents")
    spans = token_spans(params.tokenizer)
    digests: set[bytes] = set()
    count: Counter[str] = Counter()
    ids: Counter[str] = Counter()

    def note_unreadable(error: OSError) -> None:
        left_out.append(f"{_name(Path(error.filename), folder)}: cannot be read ({error.strerror})")

    for path in files_below(folder, note_unreadable):
        name = _name(path, folder)
        try:
            parts = read_parts(path)
        except CorpusError as error:
            left_out.append(f"{name}: {error}")
            continue
        count["documents"] += 1
        for passage in cut(name, parts, spans, params.chunk_tokens):
            digest = hashlib.sha256(passage.content.encode()).digest()[:16]
            if digest in digests:
                count["equal_passages_left_out"] += 1
                continue
            digests.add(digest)
            ids[passage.id] += 1  # also of two files whose names differ in Unicode form alone
            number = ids[passage.id]
            yield replace(passage, id=f"{passage.id}~{number}") if number > 1 else passage
    figures |= {name: float(count[name]) for name in ("documents", "equal_passages_left_out")}
    if not count["documents"]:
        problem = f"none of its {len(left_out)} files can be read (first: {left_out[0]})" if left_out else "it is empty"
        raise CorpusError(f"download.settings.folder: {folder}: {problem}; expected files named {', '.join(KINDS)}")


def _name(path: Path, folder: Path) -> str:
    """Return the path of a document within its folder, as used in ids."""
    return fold_id(path.relative_to(folder).as_posix().encode("utf-8", "replace").decode())


def cut(name: str, parts: Iterable[Part], spans: Spans, limit: int) -> Iterator[Passage]:
    """Yield the passages of the document ``name``: at most ``limit`` tokens each, with the title.

    The first headings of a title longer than a quarter of that are left out.

    >>> words = lambda text: [(m.start(), m.end()) for m in __import__("re").finditer(r"[a-z]+|[.>:]", text, 2)]
    >>> parts = [Part(("Guide", "Pumps"), "Turn it on. Wait a minute.")]
    >>> [(one.id, one.content) for one in cut("a.md", parts, words, 12)]
    [('a.md#7df82e0010', 'Guide > Pumps: Turn it on. Wait a minute.')]
    """
    for part in parts:
        headings = list(part.headings)
        while headings and len(spans(BETWEEN.join(headings))) > limit // 4:
            headings.pop(0)
        title = BETWEEN.join(headings)
        for text in chunks(part.text, spans, limit, header=f"{title}: " if title else ""):
            yield Passage(f"{name}#{hashlib.sha256(text.encode()).hexdigest()[:10]}", text, title)


DATASET = Dataset(documents, lambda params: f"the documents in {params.folder}", settings=DocumentsParams)
