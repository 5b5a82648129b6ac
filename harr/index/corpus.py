"""A searchable corpus, and other packages' indexes (``index.function``)."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import ParamsError
from harr.index.passage_index import PassageIndex
from harr.params.functions import import_named
from harr.params.index import IndexParams


@dataclass(frozen=True, slots=True)
class Corpus:
    """A searchable corpus: passages by row, their vectors, and the index.

    ``tables`` is where other packages keep what they compute once per corpus; None if the corpus is only a collection.
    ``check`` replaces the check of a trained retriever, given its folder and harr.json, if the vectors do not name
    their encoder.
    """

    passages: Passages
    vectors: Vectors
    index: PassageIndex
    tables: Path | None = None
    check: Callable[[Path, Mapping[str, Any]], None] | None = None


@dataclass(frozen=True, slots=True)
class OtherIndex:
    """Another package's index, which reads ``index.settings``.

    Args:
        build: runs stage index: takes passages, vectors, section ``index``, the folder to publish and one for
            unfinished work, and returns figures (at least ``rows`` and ``indexed``).
        open: opens the published index, which may be approximate, from passages, vectors, section and folder. None:
            it is a collection in harr's format.
        corpus: opens the index as a corpus without data/corpus.
    """

    build: Callable[[Passages, Vectors, IndexParams, Path, Path], dict[str, float]]
    open: Callable[[Passages, Vectors, IndexParams, Path], PassageIndex] | None = None
    corpus: Callable[[IndexParams], AbstractContextManager[Corpus]] | None = None


def other_index(params: IndexParams) -> OtherIndex | None:
    """Return another package's index that section ``index`` names; None if harr builds its own.

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
    """Open the index that stage index published in ``out``.

    Raises:
        ParamsError: as :func:`other_index`. IndexMismatch, ServiceUnavailable, DamagedFile: as
            :meth:`PassageIndex.open`.
    """
    other = other_index(params)
    if other and other.open:
        return other.open(passages, vectors, params, out)
    return PassageIndex.open(out, params, identity=vectors.identity)
