"""BM25 in mapped files: it ranks as the formula says, finds what may be searched alone, and is of one corpus."""

from math import log
from pathlib import Path

import pytest

from harr.corpus.passages import Passages, write_passages
from harr.errors import IndexMismatch
from harr.index.words import WordIndex, build_words
from harr.types import Passage

SHELF = (
    Passage("far", "Mills of Bath."),
    Passage("mill", "The mill in Bath, a mill."),
    Passage("bath", "Bath is a town.", "Bath"),
    Passage("rest", "Nothing else."),
)


def built(folder: Path, shelf: tuple[Passage, ...] = SHELF) -> tuple[Passages, WordIndex]:
    write_passages(shelf, folder / "corpus", searchable=lambda passage: passage.id != "far")
    passages = Passages.open(folder / "corpus")
    build_words(passages, folder / "words", folder / "work")
    return passages, WordIndex.of(passages, folder / "words")


def weight(times: int, length: int, holding: int, of: int = 3, mean: float = 8 / 3) -> float:
    """Lucene's BM25 with k1 .9 and b .4."""
    idf = log(1 + (of - holding + 0.5) / (holding + 0.5))
    return idf * times / (times + 0.9 * (0.6 + 0.4 * length / mean))


def test_scores_are_those_of_the_formula(tmp_path: Path) -> None:
    _, index = built(tmp_path)
    mill, bath = weight(2, 3, 1) + weight(1, 3, 2), weight(2, 3, 2)
    assert index.find_best(["mill", "bath"], 9) == {1: 1.0, 2: pytest.approx(bath / mill, rel=1e-5)}
    assert list(index.find_best(["bath"], 1)) == [2] and list(index.find_best(["else"], 9)) == [3]
    assert index.find_best(["unknown"], 9) == index.find_best([], 9) == {}


def test_equal_passages_give_equal_bytes_and_another_corpus_is_refused(tmp_path: Path) -> None:
    passages, _ = built(tmp_path / "one")
    built(tmp_path / "two")
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / n / "words").iterdir()} for n in ("one", "two"))
    assert one == two
    _, _ = built(tmp_path / "three", SHELF[:3])
    with pytest.raises(IndexMismatch):
        WordIndex.of(passages, tmp_path / "three" / "words")
