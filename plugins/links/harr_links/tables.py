"""Tables of a corpus's names and words: made on first use, verified when opened, and opened once per corpus."""

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from harr.compute import distributed
from harr.corpus.passages import Passages
from harr.errors import IndexMismatch
from harr.index.corpus import Corpus
from harr.io.files import read_manifest
from harr_links.links import Links
from harr_links.mentions import Mentions, build_mentions
from harr_links.passage_graph import PassageGraph
from harr_links.words import WordIndex, build_words

Table = TypeVar("Table")
_OPENED: WeakKeyDictionary[Passages, dict[Path, Any]] = WeakKeyDictionary()
"""The tables of the open corpora, by folder; all arms and runs over a corpus share them."""
_OPENING = threading.Lock()
"""Only one thread of a process makes or opens a table at a time: a server opens models in several."""


def open_links(corpus: Corpus) -> Links:
    """Return the links of a corpus (``retriever.link_features``).

    Raises:
        IndexMismatch: only a collection is there, without the texts.
        DamagedFile: a table changed since it was made.
    """
    mentions = open_mentions(corpus.passages, corpus.tables)
    words = _open(corpus.passages, corpus.tables, "words", build_words, WordIndex.open)
    return Links(PassageGraph(corpus.passages, mentions, words))


def open_mentions(passages: Passages, tables: Path | None) -> Mentions:
    """Return which passage of a corpus names which title; errors as for :func:`open_links`."""
    return _open(passages, tables, "mentions", build_mentions, partial(Mentions.open, passages))


def _open(
    passages: Passages,
    tables: Path | None,
    name: str,
    build: Callable[[Passages, Path, Path], object],
    read: Callable[[Path], Table],
) -> Table:
    """Return a table of this corpus; the main process makes it if it is missing."""
    if tables is None:
        raise IndexMismatch(
            "links go by the words and titles of the whole corpus, which an adopted collection alone does not tell; name "
            "a project with data/corpus"
        )
    folder = tables / passages.identity / name
    work = folder.with_name(f".{name}.{os.getpid()}")

    def make() -> None:
        if not folder.exists():
            build(passages, folder, work)

    with _OPENING:
        opened = _OPENED.setdefault(passages, {})
        if folder not in opened:
            distributed.main_process_only(make)
            read_manifest(folder, f"rm -r {folder}", once=True)
            opened[folder] = read(folder)
    table: Table = opened[folder]
    return table
