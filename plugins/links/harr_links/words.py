"""BM25 of a corpus in memory-mapped files, for a policy that searches by words after each pick.

The arms search in Milvus. In-process (Milvus Lite), a search of 12,000 passages takes 10 ms of a core, and training
makes some ten thousand searches. Here the score of every word in every passage is precomputed (Lu, arXiv 2407.03618),
and a search adds up the scores of its words.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import chain
from math import log
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np
from numpy.typing import NDArray

from harr.characters import list_words
from harr.corpus.passages import Passages
from harr.index.full_text import BM25, STOP_WORDS
from harr.io.files import draft, write_json, write_text
from harr.io.progress import bar

BLOCK = 2_000
"""Number of passages read at a time."""
PART = 50_000
"""Mean number of passages whose words are sorted at a time: some 4 million entries of 12 bytes."""
SCORED = 1 << 20
"""Number of entries weighed, and of rows scored by a search, at a time."""
COUNT = np.dtype([("word", "<i4"), ("row", "<i4"), ("times", "<i4")])
STOP = frozenset(STOP_WORDS.split())
"""Words without content."""


def words_of(text: str) -> list[str]:
    """Return the words of a text that are not English stop words, folded and in order.

    >>> words_of("Who is the director of the film?")
    ['director', 'film']
    """
    return [word for word in list_words(text) if word not in STOP]


def build_words(passages: Passages, out: Path, work: Path) -> dict[str, float]:
    """Build the BM25 index of every searchable passage and publish it in ``out``.

    words.txt: the words, one per line; starts.npy: the first entry of each word, (W + 1,); rows.npy and scores.npy: row
    and score of every entry, ascending by row. Equal passages give equal bytes. The parameters are those of the index
    (Anserini's). Only the words and one part of the entries are in memory.

    Returns:
        Figures for the metrics file.
    """
    with draft(work, out) as folder, ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile(dir=folder)) for _ in range(-(-len(passages) // PART))]
        words, holding_W, lengths_R = _count_words(passages, files)
        searchable = lengths_R >= 0
        idf_W = _idf(holding_W, int(searchable.sum()))
        norms_R = 1 - BM25["bm25_b"] + BM25["bm25_b"] * lengths_R / lengths_R[searchable].mean()
        rows, scores = (stack.enter_context((folder / f"{name}.npy").open("wb")) for name in ("rows", "scores"))
        for table, kind in ((rows, "<i4"), (scores, "<f4")):
            header = {"descr": kind, "fortran_order": False, "shape": (int(holding_W.sum()),)}
            np.lib.format.write_array_header_1_0(table, header)
        for file in files:
            file.seek(0)
            counts_E = np.fromfile(file, COUNT)
            counts_E = counts_E[np.argsort(counts_E["word"], kind="stable")]
            counts_E["row"].tofile(rows)
            for start in range(0, len(counts_E), SCORED):
                counts = counts_E[start : start + SCORED]
                shares = counts["times"] / (BM25["bm25_k1"] * norms_R[counts["row"]] + counts["times"])
                (idf_W[counts["word"]] * shares).astype("<f4").tofile(scores)
        order = [number for part in range(len(files)) for number in range(part, len(words), len(files))]
        write_text(folder / "words.txt", "\n".join(words[number] for number in order))
        np.save(folder / "starts.npy", np.concatenate([[0], holding_W[order].cumsum()]), allow_pickle=False)
        write_json(folder / "manifest.json", {"identity": passages.identity})
    return {"words": float(len(words))}


def _count_words(
    passages: Passages, files: Sequence[IO[bytes]]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int32]]:
    """Write how many times each passage has each word, word w to file w % n; within a block by word and row.

    Returns:
        The words; the number of passages with each; and the length of every row, -1 if it is not searchable.
    """
    numbers, holding_W = dict[str, int](), np.zeros(0, dtype=np.int64)
    rows, lengths_R = passages.searchable_rows(), np.full(len(passages), -1, dtype=np.int32)
    with bar(total=len(rows), desc="words", unit="passage") as progress:
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            words = [words_of(passage.content) for passage in passages.take(block.tolist())]
            lengths_R[block] = [*map(len, words)]
            ids = (numbers.setdefault(word, len(numbers)) for word in chain.from_iterable(words))
            pairs = np.fromiter(ids, np.int64) << 32 | np.repeat(block, lengths_R[block])
            pairs, times = np.unique(pairs, return_counts=True)
            counts = np.empty(len(pairs), COUNT)
            counts["word"], counts["row"], counts["times"] = pairs >> 32, pairs & 0xFFFFFFFF, times
            here = np.bincount(counts["word"], minlength=len(numbers))
            here[: len(holding_W)] += holding_W
            holding_W = here
            part_of = counts["word"] % len(files)
            for part, file in enumerate(files):
                counts[part_of == part].tofile(file)
            progress.update(len(block))
    return [*numbers], holding_W, lengths_R


def _idf(holding_W: NDArray[np.int64], passages: int) -> NDArray[np.float32]:
    """Return Lucene's IDF weight of each word."""
    distinct, number_W = np.unique(holding_W, return_inverse=True)
    weights = [log(1 + (passages - holding + 0.5) / (holding + 0.5)) for holding in distinct.tolist()]
    return np.array(weights, dtype=np.float32)[number_W]


class WordIndex:
    """The memory-mapped index of :func:`build_words`."""

    def __init__(
        self, words: list[str], starts: NDArray[np.int64], rows: NDArray[np.int32], scores: NDArray[np.float32]
    ) -> None:
        """Store the tables of :func:`build_words`; use :meth:`open`."""
        self._numbers = {word: number for number, word in enumerate(words)}
        self._starts, self._rows, self._scores = starts, rows, scores

    @classmethod
    def open(cls, folder: Path) -> "WordIndex":
        """Map the index in ``folder``."""
        words = (folder / "words.txt").read_text(encoding="utf-8").split("\n")
        paths = [folder / f"{name}.npy" for name in ("starts", "rows", "scores")]
        tables = (np.load(path, mmap_mode="r", allow_pickle=False) for path in paths)
        return cls(words, *map(np.asarray, tables))  # slicing a memmap takes three times as long

    def find_best(self, words: Iterable[str], n: int) -> dict[int, float]:
        """Return row -> score relative to the best, for the ``n`` best passages with one of the ``words``.

        Best first, equal scores in row order. A repeated word counts twice.
        """
        numbers = [self._numbers[word] for word in words if word in self._numbers]
        if not numbers:
            return {}
        spans = [slice(self._starts[number], self._starts[number + 1]) for number in numbers]
        entries = [(self._rows[span], self._scores[span]) for span in spans]
        end = 1 + max(int(rows[-1]) for rows, _ in entries)
        best = [_best_of_block(entries, first, min(first + SCORED, end), n) for first in range(0, end, SCORED)]
        rows, scores = (np.concatenate(column) for column in zip(*best, strict=True))
        top = _largest(scores, n)
        return dict(zip(rows[top].tolist(), (scores[top] / scores[top[0]]).tolist(), strict=True))


def _best_of_block(
    entries: Sequence[tuple[NDArray[np.int32], NDArray[np.float32]]], first: int, end: int, n: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the ``n`` best rows from ``first`` up to ``end``, and their scores."""
    total = np.zeros(end - first, dtype=np.float32)
    for rows, scores in entries:
        start, stop = np.searchsorted(rows, (first, end))
        np.add.at(total, rows[start:stop] - first, scores[start:stop])
    best = _largest(total, n)
    return best + first, total[best]


def _largest(scores: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    """Return the places of the ``n`` largest scores above 0, largest first, equal ones in order."""
    places = np.flatnonzero(scores > 0)
    if len(places) > n:
        places = places[scores[places] >= np.partition(scores[places], -n)[-n]]
    return places[np.argsort(-scores[places], kind="stable")][:n]
