"""BM25 of a corpus in memory-mapped files, for a policy that searches by words after each of its picks.

Milvus answers the arms. Inside the process (Milvus Lite) a search takes 10 ms of a core in 12,000 passages, and
training makes some ten thousand searches; bm25s (Lu, arXiv 2407.03618) takes 3 ms in 58,000.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harr.corpus.passages import Passages
from harr.corpus.vectors import check_corpus
from harr.index.full_text import BM25, STOP_WORDS
from harr.io.extras import optional
from harr.io.files import draft, read_manifest, write_json
from harr.io.progress import bar
from harr.services.milvus_client import REBUILD

if TYPE_CHECKING:
    import bm25s

BLOCK = 10_000
WORD = re.compile(r"\w+")
STOP = frozenset(STOP_WORDS.split())
"""Words without content."""


def words_of(text: str) -> list[str]:
    """Return the words of a text that are no stop words, in lower case and in order.

    >>> words_of("Who is the director of the film?")
    ['director', 'film']
    """
    return [word for word in WORD.findall(text.casefold()) if word not in STOP]


def build_words(passages: Passages, out: Path, work: Path) -> dict[str, float]:
    """Build the BM25 index of every searchable passage, and publish it in ``out`` in the format of bm25s.

    Equal passages give equal bytes. The parameters are those of the index (Anserini's).

    Returns:
        Figures for the metrics file.
    """
    rows, numbers = passages.searchable_rows(), dict[str, int]()
    token_ids: list[list[int]] = []
    with bar(total=len(rows), desc="words", unit="passage") as progress:
        for start in range(0, len(rows), BLOCK):
            part = passages.take(rows[start : start + BLOCK].tolist())
            token_ids += [[numbers.setdefault(w, len(numbers)) for w in words_of(p.content)] for p in part]
            progress.update(len(part))
    index = optional("bm25s", "links").BM25(method="lucene", k1=BM25["bm25_k1"], b=BM25["bm25_b"])
    index.index((token_ids, numbers), show_progress=False)
    with draft(work, out) as folder:
        index.save(folder, show_progress=False)
        write_json(folder / "manifest.json", {"identity": passages.identity, "corpus": passages.identity})
    return {"words": float(len(numbers))}


class WordIndex:
    """The memory-mapped index of :func:`build_words`."""

    def __init__(self, index: "bm25s.BM25", rows: NDArray[np.int64]) -> None:
        """Take an index and the rows of its passages; use :meth:`of`."""
        self._index, self._rows = index, rows

    @classmethod
    def of(cls, passages: Passages, folder: Path) -> "WordIndex":
        """Map the index in ``folder``, which must be of this corpus.

        Raises:
            DamagedFile: a file is missing or changed. IndexMismatch: it was made of another corpus.
        """
        bm25s = optional("bm25s", "links")
        check_corpus(read_manifest(folder, REBUILD, keys={"corpus": str}), passages.identity, folder)
        return cls(bm25s.BM25.load(folder, mmap=True, show_progress=False), passages.searchable_rows())

    def find_best(self, words: Iterable[str], n: int) -> dict[int, float]:
        """Return row -> score as a share of the best, for the ``n`` best passages with one of the ``words``.

        Best first; equal scores are in the order of rows. A repeated word counts twice.
        """
        token_ids = self._index.get_tokens_ids(list(words))
        if not token_ids:
            return {}
        scores_R = self._index.get_scores_from_ids(token_ids)
        top = np.argpartition(-scores_R, min(n, len(scores_R)) - 1)[:n]
        top = top[np.lexsort((top, -scores_R[top]))]
        top = top[scores_R[top] > 0]
        return dict(zip(self._rows[top].tolist(), (scores_R[top] / scores_R[top[0]]).tolist(), strict=True))
