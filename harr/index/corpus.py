"""A corpus as it is searched, and the index of another package that it may be searched by (``index.function``)."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import ParamsError
from harr.index.mentions import Mentions
from harr.index.passage_index import PassageIndex
from harr.index.words import WordIndex
from harr.params.functions import import_named
from harr.params.index import IndexParams


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus as it is searched: passages by row, their vectors, the index of both, and the titles that they name.

    ``mentions`` opens the last, and ``words`` BM25 in memory; only some need them. ``check`` refuses a trained
    retriever, by its folder and its harr.json, where the vectors do not say which encoder made them.
    """

    passages: Passages
    vectors: Vectors
    index: PassageIndex
    mentions: Callable[[], Mentions]
    words: Callable[[], WordIndex]
    check: Callable[[Path, Mapping[str, Any]], None] | None = None


@dataclass(frozen=True, slots=True)
class OtherIndex:
    """An index of another package, which reads ``index.settings``.

    Args:
        build: what stage index does: of passages, vectors, section ``index``, the folder to publish, and one for
            unfinished work, it returns figures (``rows`` and ``indexed`` at least).
        open: opens what was published, of passages, vectors, section and folder, approximate as it may be; None: it is
            a collection as harr builds them.
        corpus: opens the index as a corpus of its own, where there is no data/corpus.
    """

    build: Callable[[Passages, Vectors, IndexParams, Path, Path], dict[str, float]]
    open: Callable[[Passages, Vectors, IndexParams, Path], PassageIndex] | None = None
    corpus: Callable[[IndexParams], AbstractContextManager[Corpus]] | None = None


def other_index(params: IndexParams) -> OtherIndex | None:
    """Return the index of another package that section ``index`` names; None where harr builds its own.

    Raises:
        ParamsError: it cannot be imported, or is something else.
    """
    if params.function is None:
        return None
    other = import_named(params.function, key="index.function")
    if not isinstance(other, OtherIndex):
        raise ParamsError(
            f"index.function: {params.function} is {type(other).__name__}; give an OtherIndex (harr/index/corpus.py)"
        )
    return other


def open_index(passages: Passages, vectors: Vectors, params: IndexParams, out: Path) -> PassageIndex:
    """Open what stage index published in ``out``.

    Raises:
        ParamsError: as :func:`other_index`. IndexMismatch, ServiceUnavailable, DamagedFile: as
            :meth:`PassageIndex.open`.
    """
    other = other_index(params)
    if other and other.open:
        return other.open(passages, vectors, params, out)
    return PassageIndex.open(out, params, identity=vectors.identity)
