"""The corpus store: shards, hashes, and rows by id."""

from pathlib import Path

import numpy as np
import pytest

import harr.corpus.passages as store
from harr.corpus.passages import Passages, read_questions, write_passages, write_questions
from harr.errors import DamagedFile
from harr.types import Hop, Passage, Question


def made(count: int) -> list[Passage]:
    return [Passage(f"p{i}", f"text {i}", f"title {i}") for i in range(count)]


def test_many_shards_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SHARD_ROWS", 10)
    monkeypatch.setattr(store, "BATCH_ROWS", 4)
    manifest = write_passages(made(25), tmp_path, searchable=lambda passage: passage.id != "p3")
    assert [shard["rows"] for shard in manifest["shards"]] == [10, 10, 5]
    passages = Passages.open(tmp_path)
    assert len(passages) == 25
    assert passages.take([24, 0]) == [made(25)[24], made(25)[0]]
    assert passages.contents(9, 11) == ["title 9: text 9", "title 10: text 10"]
    assert passages.rows_of(["p11", "none"]) == {"p11": 11}
    assert passages.rows_of(["p11", "p2"]) == {"p11": 11, "p2": 2}
    assert 3 not in passages.searchable_rows() and len(passages.searchable_rows()) == 24
    assert np.flatnonzero(~passages.searchable).tolist() == [3] and len(passages.searchable) == 25


def test_one_changed_byte_is_found_and_named(tmp_path: Path) -> None:
    write_passages(made(3), tmp_path)
    shard = tmp_path / "passages-00000.arrow"
    body = bytearray(shard.read_bytes())
    body[len(body) // 2] ^= 1
    shard.write_bytes(body)
    with pytest.raises(DamagedFile, match=r"passages-00000\.arrow is damaged .*dvc repro -f -s download"):
        Passages.open(tmp_path)


def test_questions_come_back_as_they_were(tmp_path: Path) -> None:
    questions = [Question("q", "Who?\u2028Really?", ("Ada",), ("p1",), ("p1", "p2"), "2hop")]
    questions += [Question("c/2", "And where?", history=(Hop("Who?", "Ada"), Hop("When?", "")), notes={"a": 1})]
    write_questions(questions, tmp_path / "q.jsonl")
    assert read_questions(tmp_path / "q.jsonl") == questions
    (tmp_path / "q.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(DamagedFile, match=r"q\.jsonl cannot be read"):
        read_questions(tmp_path / "q.jsonl")
