"""What was trained on, and what has changed since."""

from dataclasses import replace
from pathlib import Path

import pytest

from harr.corpus.changes import Changes, TrainedOn
from harr.corpus.passages import Passages, write_passages
from harr.errors import DamagedFile
from harr.types import Passage

BEFORE = [Passage(f"p{i}", f"Town {i}.") for i in range(20)]


def noted(folder: Path, passages: list[Passage], questions: str = "one\ntwo\n", kind: str = "flat") -> TrainedOn:
    write_passages(passages, folder / "corpus")
    (folder / "questions").write_text(questions)
    return TrainedOn.of(Passages.open(folder / "corpus"), [folder / "questions"], {"kind": kind})


def test_passages_that_came_went_and_changed_are_counted_wherever_they_stand(tmp_path: Path) -> None:
    noted(tmp_path, BEFORE).save(tmp_path / "trained_on", tmp_path / "work")
    before = TrainedOn.open(tmp_path / "trained_on")
    after = [Passage("new", "A lake."), replace(BEFORE[4], text="Dry."), *BEFORE[:4:-1], *BEFORE[:2]]
    changes = noted(tmp_path, after, "two\n").changes_since(before)
    assert changes == Changes(passages=20, added=1, removed=2, changed=1, questions=0, made=False)
    assert changes.share == 0.2 and not changes.requires_training(0.2) and changes.requires_training(0.19)
    assert not noted(tmp_path, BEFORE[::-1]).changes_since(before).requires_training(0.0), "the order does not count"


def test_a_new_or_changed_question_and_another_index_count_however_little_the_corpus_changed(tmp_path: Path) -> None:
    before = noted(tmp_path, BEFORE)
    assert noted(tmp_path, BEFORE, "one\nthree\n").changes_since(before).requires_training(1.0)
    assert not noted(tmp_path, BEFORE, "one\n").changes_since(before).requires_training(0.0), (
        "its gold passage may be gone"
    )
    assert noted(tmp_path, BEFORE, kind="hnsw").changes_since(before).requires_training(1.0)


def test_a_damaged_note_is_refused(tmp_path: Path) -> None:
    noted(tmp_path, BEFORE).save(tmp_path / "trained_on", tmp_path / "work")
    path = tmp_path / "trained_on/marks.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedFile, match=r"marks\.npy is damaged"):
        TrainedOn.open(tmp_path / "trained_on")
