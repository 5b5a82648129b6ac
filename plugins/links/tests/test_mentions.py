"""Which passage names which title: found once, checked when opened."""

from pathlib import Path

import pytest
from harr_links.mentions import Mentions, build_mentions
from shelves import graph_of

from harr.corpus.passages import Passages, write_passages
from harr.errors import DamagedFile
from harr.types import Passage

SHELF = (
    Passage("film", 'The Old Mill is new. It is directed by Ada Brown. "Ada Brown" wrote it.', "The Old Mill (film)"),
    Passage("ada", "Ada Brown lives by the mill. She swims, says Carl-Dean Old.", "Ada Brown"),
    Passage("carl", "Nobody; an Éire is named, a Mill, and the old mill.", "Carl Dean Old"),
    Passage("mill", "A mill grinds.", "Mill"),
    Passage("eire", "", "Éire"),
)


def corpus(folder: Path, passages: tuple[Passage, ...] = SHELF) -> Passages:
    write_passages(passages, folder)
    return Passages.open(folder)


def test_each_naming_sentence_of_each_passage(tmp_path: Path) -> None:
    passages = corpus(tmp_path / "corpus")
    figures = build_mentions(passages, tmp_path / "out", tmp_path / "work")
    mentions = Mentions.open(passages, tmp_path / "out")
    found = {
        passage.id: [
            (SHELF[mentions.titles.rows(title)[0]].id, passage.text[start:end].strip())
            for title, start, end in mentions.list_mentions(row)
        ]
        for row, passage in enumerate(SHELF)
    }
    assert found == {
        "film": [("ada", "It is directed by Ada Brown."), ("ada", '"Ada Brown" wrote it.')],
        "ada": [("carl", "She swims, says Carl-Dean Old.")],
        "carl": [(name, SHELF[2].text) for name in ("eire", "mill", "film")],
        "mill": [],
        "eire": [],
    }, "its own title is none; a word alone needs its capital"
    assert figures["mentions"] == 6


def test_titles_of_scripts_without_case_or_spaces(tmp_path: Path) -> None:
    shelf = (
        Passage("steel", "公司在北京。赵伟伟创立了它。", "北京钢铁公司"),
        Passage("zhao", "他住在北京钢铁公司旁边。他很老！", "赵伟伟"),
        Passage("cairo", "Ахмед живёт в Москве.", "القاهرة"),
        Passage("ahmed", "وُلد في القاهرة؟ نعم.", "Ахмед"),
        Passage("fire", "", "火"),
    )
    passages = corpus(tmp_path / "corpus", shelf)
    build_mentions(passages, tmp_path / "out", tmp_path / "work")
    mentions = Mentions.open(passages, tmp_path / "out")
    named = [
        [(shelf[mentions.titles.rows(title)[0]].id, passage.text[start:end].strip()) for title, start, end in found]
        for passage, found in ((passage, mentions.list_mentions(row)) for row, passage in enumerate(shelf))
    ]
    assert named == [
        [("zhao", "赵伟伟创立了它。")],
        [("steel", "他住在北京钢铁公司旁边。")],
        [("ahmed", "Ахмед живёт в Москве.")],
        [("cairo", "وُلد في القاهرة؟")],
        [],
    ]


def test_tables_are_made_once_for_each_corpus_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    passages, tables = corpus(tmp_path / "corpus"), tmp_path / "tables"
    (made,) = {graph_of(passages, tables).mentions.titles.count for _ in range(2)}
    assert graph_of(passages, tables).mentions is graph_of(passages, tables).mentions, "arms of a corpus share them"
    assert made == len(SHELF) and graph_of(corpus(tmp_path / "other", SHELF[:3]), tables).mentions.titles.count == 3
    assert {"mentions", "words"} <= {path.name for path in (tables / passages.identity).iterdir()}
    (tables / passages.identity / "mentions/named.npy").write_bytes(b"")
    with pytest.raises(DamagedFile, match=r"named.npy is damaged .* run `rm -r .*mentions`"):
        graph_of(Passages.open(tmp_path / "corpus"), tables)
