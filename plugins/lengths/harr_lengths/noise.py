"""Sentences without relation to a story: a book, any file or function with texts, or RULER's five."""

import re
from collections.abc import Iterable
from itertools import cycle, islice
from pathlib import Path

from harr.errors import CorpusError
from harr.io.jsonl import read_rows
from harr.params.fields import is_dotted
from harr.params.functions import function_of
from harr_lengths.babi_rules import event_of

REPEATED = (
    "The grass is green.",
    "The sky is blue.",
    "The sun is yellow.",
    "Here we go.",
    "There and back again.",
)
"""RULER's haystack without content (arXiv 2404.06654), repeated."""
_FEWEST = 2000
"""Number of sentences of RULER's haystack for short documents."""
_END = re.compile(r"(?<=[.!?])[\"'\u201d\u2019)\]]*\s+(?=[\"'\u201c\u2018(\[]*[A-Z0-9])")
_SHORT = re.compile(r"(?:^|[\s(\"'\u201c\u2018])(?:Mr|Mrs|Ms|Dr|St|Prof|Rev|Capt|Col|Gen|[A-Z])\.$")


def noise_sentences(source: str, at_least: int = 0, seed: int = 0) -> list[str]:
    """Return the sentences of ``source`` in order, each text once, without those that state a bAbI fact.

    ``source``: a text file (paragraphs end at an empty line), a JSON lines file with a field ``text`` (plain or
    gzipped), a function ``package.module:name`` of another package, which returns texts with at least twice
    ``at_least`` sentences, or ``repeated``: as many, by repeating the same five.

    Raises:
        CorpusError: the file is missing, is not UTF-8, has a row without text, or has no sentence. ParamsError: the
            function cannot be imported.
    """
    if source == "repeated":
        return list(islice(cycle(REPEATED), max(_FEWEST, 2 * at_least)))
    if is_dotted(source):
        make = function_of(source, key="noise", shape="returns texts: (at_least, seed) -> texts", takes=2)
        texts: Iterable[str] = make(at_least, seed)
    elif source.endswith((".jsonl", ".jsonl.gz")):
        texts = (row.text("text", "noise") for row in read_rows(Path(source)))
    else:
        texts = _paragraphs(Path(source))
    unique = dict.fromkeys(sentence for text in texts for sentence in split_sentences(text))
    sentences = [sentence for sentence in unique if event_of(sentence) is None]
    if not sentences:
        raise CorpusError(f"{source}: no sentences; set download.settings.noise to a text with sentences")
    return sentences


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, white space folded.

    A sentence ends at ``.``, ``!`` or ``?`` before white space and a capital or a digit (quotes and brackets may come
    between), but not after ``Mr.`` and the like or a single letter. A single word is no sentence.

    >>> split_sentences('"Well!" said Mr. Bell.  It was\\n3 p.m. already. Chapter')
    ['"Well!" said Mr. Bell.', 'It was 3 p.m. already.']
    """
    folded = " ".join(text.replace("\x00", " ").split())
    sentences: list[str] = []
    start = 0
    for end in _END.finditer(folded):
        if not _SHORT.search(folded[start : end.start()]):
            sentences.append(folded[start : end.end()].rstrip())
            start = end.end()
    return [sentence for sentence in (*sentences, folded[start:]) if " " in sentence]


def _paragraphs(path: Path) -> list[str]:
    if not path.is_file():
        raise CorpusError(f"{path} is missing; set download.settings.noise in params.yaml to a text file")
    try:
        return re.split(r"\n\s*\n", path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise CorpusError(f"{path}: not UTF-8; convert the file to UTF-8") from None
