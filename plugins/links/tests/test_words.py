"""BM25 in mapped files: it ranks as the formula says, finds what may be searched alone, and is of one corpus."""

from math import log
from pathlib import Path

import bm25s
import numpy as np
import pytest
from harr_links import words
from harr_links.words import WordIndex, build_words, words_of

from harr.corpus.passages import Passages, write_passages
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
    return passages, WordIndex.open(folder / "words")


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


def test_equal_passages_give_equal_bytes(tmp_path: Path) -> None:
    built(tmp_path / "one")
    built(tmp_path / "two")
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / n / "words").iterdir()} for n in ("one", "two"))
    assert one == two


def test_scores_are_those_of_bm25s_to_the_last_bit_however_the_work_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 7 passages, words in 14 parts, and searches of 16 rows at a time."""
    for name, size in (("BLOCK", 7), ("PART", 15), ("SCORED", 16)):
        monkeypatch.setattr(words, name, size)
    draw = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in draw.zipf(1.3, draw.integers(1, 40)) % 300) for _ in range(200)]
    _, index = built(tmp_path, tuple(Passage(str(number), text) for number, text in enumerate(texts)))
    theirs = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    theirs.index([words_of(text) for text in texts], show_progress=False)
    for query in (["w1"], ["w2", "w2", "w250"], [f"w{word}" for word in draw.zipf(1.3, 30) % 300]):
        scores = theirs.get_scores([word for word in query if word in theirs.vocab_dict])
        best = [row for row in np.argsort(-scores, kind="stable").tolist() if scores[row]][:10]
        wanted = {row: float(scores[row] / scores[best[0]]) for row in best}
        assert list(index.find_best(query, 10).items()) == list(wanted.items())
