"""Which passage names which title in which sentence: computed once per corpus, read by every search.

Titles are compared word by word, without case, punctuation or a qualifier in brackets ("Casablanca (film)"). At each
word the longest title counts, and none within it (maximal munch). A one-word title must be capitalised. All titles are
matched at once (Aho and Corasick, 1975).
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import ahocorasick_rs as matcher
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex
from numpy.typing import NDArray

from harr.characters import WORD, fold
from harr.corpus.passages import Passages
from harr.io.files import draft, write_json
from harr.io.progress import bar
from harr_links.words import STOP, words_of

PER_TITLE = 20
"""Maximum number of passages per title; a document may have been cut into many."""
BLOCK = 10_000
_SENTENCE = regex.compile(
    r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\b[JSDM]r\.)(?<!\bSt\.)\s+|(?<=[\p{STerm}--\p{ASCII}])\s*(?=\S)", regex.V1
)
"""A gap between sentences: not after an initial ("S. Sylvan Simon") or an abbreviated form of address."""
_CASELESS = regex.compile(r"\p{Lo}\p{M}*[\p{Lo}--[ªº]]", regex.V1)
_QUALIFIER = re.compile(r"\s*\([^()]*\)\s*$")


@dataclass(frozen=True, slots=True)
class Mention:
    """A title in a text: its number, its number of words, and its span."""

    title: int
    words: int
    start: int
    end: int


class Titles:
    """The titles of a corpus, and the rows of each title."""

    def __init__(self, titles: pa.ChunkedArray) -> None:
        """Read the ``titles`` of all passages, in row order."""
        coded = pc.dictionary_encode(titles.combine_chunks() if isinstance(titles, pa.ChunkedArray) else titles)
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        self.of_row: NDArray[np.int64] = np.asarray(coded.indices, dtype=np.int64)
        self._rows = np.argsort(self.of_row, kind="stable")
        self.count = len(coded.dictionary)
        self._first = np.searchsorted(self.of_row[self._rows], np.arange(self.count + 1))
        titles_of: dict[tuple[str, ...], list[int]] = {}
        for number, title in enumerate(coded.dictionary.to_pylist()):
            for words in {tuple(WORD.findall(_QUALIFIER.sub("", title))), tuple(WORD.findall(title))}:
                if words and (len(words) > 1 or is_name(words[0])):
                    titles_of.setdefault(tuple(map(fold, words)), []).append(number)
        self._titles_of = list(titles_of.values())
        self._sizes = list(map(len, titles_of))
        longest = matcher.MatchKind.LeftmostLongest
        self._matcher = matcher.AhoCorasick((_space_words(words) for words in titles_of), matchkind=longest)

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self._titles_of)

    def find_mentions(self, text: str) -> list[Mention]:
        """Return the titles that a text names, in order; several titles may have one name."""
        words = list(WORD.finditer(text))
        folded = [fold(word.group()) for word in words]
        starts = {start: place for place, start in enumerate(accumulate((len(word) + 2 for word in folded), initial=1))}
        mentions = []
        for name, start, _ in self._matcher.find_matches_as_indexes(f" {_space_words(folded)} "):
            size = self._sizes[name]
            first, last = words[starts[start]], words[starts[start] + size - 1]
            if size > 1 or is_name(first.group()):
                mentions += [Mention(title, size, first.start(), last.end()) for title in self._titles_of[name]]
        return mentions

    def rows(self, title: int) -> NDArray[np.int64]:
        """Return the rows of a title, at most ``PER_TITLE``."""
        return self._rows[self._first[title] : self._first[title + 1]][:PER_TITLE]


def _space_words(words: Sequence[str]) -> str:
    """Join words with a space on either side of each, so that neighbouring names do not share one.

    >>> _space_words(["the", "mill"])
    ' the  mill '
    """
    return "".join(f" {word} " for word in words)


def is_name(word: str) -> bool:
    """Return whether a word may be a title by itself: capitalised and no stop word, or caseless and more than one
    character of a script without spaces."""
    return (word[0].isupper() and fold(word) not in STOP) or bool(_CASELESS.match(word))


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text that are not stop words, in lower case.

    >>> sorted(content_words("Who is the director of the film?"))
    ['director', 'film']
    """
    return frozenset(words_of(text))


def build_mentions(passages: Passages, out: Path, work: Path) -> dict[str, float]:
    """Find the titles that every passage names, except its own, and publish them in ``out``.

    starts.npy: the first mention of each row, (R + 1,); named.npy: title, and start and end of its sentence in the
    passage's text, (M, 3). Equal passages give equal bytes.

    Returns:
        Figures for the metrics file.
    """
    titles = Titles(passages.titles)
    counts = np.zeros(len(passages), dtype=np.int64)
    tables = [np.zeros((0, 3), dtype=np.int32)]
    with bar(total=len(passages), desc="mentions", unit="passage") as progress:
        for start in range(0, len(passages) if len(titles) else 0, BLOCK):
            rows = range(start, min(start + BLOCK, len(passages)))
            block: list[tuple[int, int, int]] = []
            for row, passage in zip(rows, passages.take(rows), strict=True):
                mentions = _find_mentions(titles, passage.text, int(titles.of_row[row]))
                block += mentions
                counts[row] = len(mentions)
            tables.append(np.array(block, dtype=np.int32).reshape(-1, 3))
            progress.update(len(rows))
    table_M3 = np.concatenate(tables)
    with draft(work, out) as folder:
        np.save(folder / "starts.npy", np.concatenate([[0], counts.cumsum()]), allow_pickle=False)
        np.save(folder / "named.npy", table_M3, allow_pickle=False)
        write_json(folder / "manifest.json", {"identity": passages.identity})
    return {"titles": float(len(titles)), "mentions": float(len(table_M3))}


def _find_mentions(titles: Titles, text: str, own_title: int) -> list[tuple[int, int, int]]:
    """Return (title, start, end of the sentence) of all titles that a text names, except ``own_title``; a title once
    per sentence."""
    starts = [0, *(gap.end() for gap in _SENTENCE.finditer(text))]
    ends = [*starts[1:], len(text)]
    sentence_ends: dict[tuple[int, int], int] = {}
    for mention in titles.find_mentions(text):
        sentence = bisect_right(starts, mention.start) - 1
        if mention.title != own_title:
            sentence_ends.setdefault((mention.title, starts[sentence]), max(ends[sentence], mention.end))
    return [(title, start, end) for (title, start), end in sentence_ends.items()]


class Mentions:
    """The titles that each passage of a corpus names."""

    def __init__(self, titles: Titles, starts: NDArray[np.int64], named_M3: NDArray[np.int32]) -> None:
        """Store the tables of :func:`build_mentions`; use :meth:`open`."""
        self.titles = titles
        self._starts, self._named_M3 = starts, named_M3

    @classmethod
    def open(cls, passages: Passages, folder: Path) -> "Mentions":
        """Map the mentions of this corpus in ``folder``."""
        paths = (folder / "starts.npy", folder / "named.npy")
        return cls(Titles(passages.titles), *(np.load(path, mmap_mode="r", allow_pickle=False) for path in paths))

    def list_mentions(self, row: int) -> list[tuple[int, int, int]]:
        """Return (title, start, end of the naming sentence) of the titles that a passage names."""
        part = self._named_M3[int(self._starts[row]) : int(self._starts[row + 1])]
        return [(title, start, end) for title, start, end in part.tolist()]

    def rows_naming(self, title: int) -> NDArray[np.int64]:
        """Return the rows of the passages that name a title, ascending."""
        rows_M, starts = self._rows_by_title
        return np.unique(rows_M[int(starts[title]) : int(starts[title + 1])])

    @cached_property
    def _rows_by_title(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The row of every mention in the order of titles, and the start of each title."""
        titles_M = self._named_M3[:, 0]
        rows_M = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts))
        return rows_M[np.argsort(titles_M, kind="stable")], np.concatenate(
            [[0], np.bincount(titles_M, minlength=self.titles.count).cumsum()]
        )
