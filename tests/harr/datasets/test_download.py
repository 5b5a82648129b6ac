"""Loading local files: valid input is stored; invalid input gives one clear line and changes nothing."""

import bz2
import gzip
import json
import lzma
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from digests import digests
from downloading import questions, run, write_rows
from encyclopaedia import encyclopaedia
from hypothesis import given, strategies as st
from pyarrow import parquet

from harr.corpus.passages import Passages
from harr.datasets.preview import read_data
from harr.errors import CorpusError
from harr.io.jsonl import Row, fold_id
from harr.params.download import FunctionDatasetParams, JsonlParams

PASSAGES = (
    {"id": "p1", "title": "Ada Brown", "text": "Ada Brown  founded\nAcme.", "set": ["a", "b"]},
    {"id": "p2", "title": "", "text": "Acme is in Ashford.", "set": ["b"]},
)
QUESTION = {"id": "q1", "question": "Who founded Acme?", "answers": ["Ada Brown"], "supporting": ["p1"]}
OTHER = {**QUESTION, "id": "q2", "question": "Where is Acme?", "supporting": ["p2"], "context_ids": ["p1", "p2"]}


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 90868376\n"


def write(passages: Any = PASSAGES, train: Any = (QUESTION,), test: Any = (OTHER,), **more: Any) -> JsonlParams:
    """Write files of rows (or raw lines) and return the section that names them."""
    files = {"passages": passages, "train": train, "test": test}
    named = {name: [write_rows(f"{name}.jsonl", rows)] for name, rows in files.items()}
    return JsonlParams.model_validate({"dataset": "jsonl", **named, **more})


def run_with(params: JsonlParams, passages: str) -> dict[str, float]:
    return run(params.model_copy(update={"passages": (passages,)}))


def asked(split: str) -> list[str]:
    return [question.id for question in questions(split)]


MANY = [{**QUESTION, "id": f"q{number}", "question": f"Who founded Acme {number}?"} for number in range(8)]


def test_rows_become_passages_and_questions() -> None:
    counts = run(write())
    assert (counts["passages"], counts["train_questions"], counts["test_questions"]) == (2, 1, 1)
    stored = Passages.open(Path("data/corpus"))
    first, second = stored.take([0, 1])
    assert first.content == "Ada Brown: Ada Brown founded Acme."
    assert second.content == "Acme is in Ashford."
    assert stored.rows_of(["p2", "p9", "p1"]) == {"p2": 1, "p1": 0}
    (question,) = questions("test")
    assert question.gold_ids == ("p2",) and question.candidate_ids == ("p1", "p2")


def test_a_title_that_is_null_is_none() -> None:
    run(write(passages=[{**PASSAGES[0], "title": None}, PASSAGES[1]]))
    assert Passages.open(Path("data/corpus")).contents(0, 1) == ["Ada Brown founded Acme."]


TEXTS = ["Ada Brown founded Acme.", "Acme is in Ashford."]


@pytest.mark.parametrize(
    "columns",
    [
        {"id": pa.array([1, 2], pa.int64()), "text": pa.array(TEXTS, pa.large_string())},
        {"id": pa.array(["1", "2"]).dictionary_encode(), "text": pa.array(TEXTS), "title": pa.nulls(2)},
    ],
)
def test_columns_of_any_type_of_text_are_read(columns: dict[str, pa.Array]) -> None:
    parquet.write_table(pa.table(columns), "corpus.parquet", compression="zstd")
    named = {"supporting": [1], "context_ids": [1, "2"]}
    run_with(write(train=[{**QUESTION, **named}], test=[{**OTHER, **named}]), "corpus.parquet")
    assert Passages.open(Path("data/corpus")).contents(0, 2) == TEXTS


def test_gzip_bom_and_windows_line_ends_are_read() -> None:
    rows = [json.dumps(row).encode() + b"\r" for row in PASSAGES]
    assert run_with(write(), write_rows("odd.jsonl.gz", [b"\xef\xbb\xbf" + rows[0], rows[1]]))["passages"] == 2


@pytest.mark.parametrize(
    ("stored", "named"),
    [(7, "7"), ("7", 7), ("e\u0301t\u00e9", "\u00e9te\u0301"), ("p7\u200b", "p7 "), ("p7", "\ufeffp7")],
)
def test_ids_that_other_programs_wrote_name_the_same_passage(stored: Any, named: Any) -> None:
    passages = [PASSAGES[0], {**PASSAGES[1], "id": stored}]
    test = {**OTHER, "id": 2, "supporting": [named], "context_ids": ["p1", stored], "answers": [1900]}
    run(write(passages=passages, test=[test]))
    (question,) = questions("test")
    assert question.id == "2" and question.gold_ids == question.candidate_ids[1:] and question.answers == ("1900",)


@given(value=st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.lists(st.text()))
def test_a_text_or_a_whole_number_is_an_id_and_anything_else_is_refused_with_its_type(value: Any) -> None:
    row = Row({"id": value}, "a.jsonl:3")
    if (type(value) is int) or (type(value) is str and fold_id(value)):
        assert row.text("id", "passage") == fold_id(str(value)) == fold_id(fold_id(str(value)))
        return
    with pytest.raises(
        CorpusError, match=r"^a\.jsonl:3: passage without id \(id is .*expected a non-empty string"
    ) as error:
        row.text("id", "passage")
    assert "\n" not in str(error.value) and (value is None or f", a {type(value).__name__})" in str(error.value))


def test_equal_input_gives_equal_bytes_and_a_row_may_be_held_back() -> None:
    params = write(
        searchable_where={"set": "a"}, train=[QUESTION, {**OTHER, "id": "again", "question": "where IS  acme"}]
    )
    counts = run(params)
    assert (counts["train_questions"], counts["train_questions_dropped_because_in_test"]) == (1, 1)
    assert Passages.open(Path("data/corpus")).searchable_rows().tolist() == [0]
    before = digests(Path("data"))
    run(params)
    assert before == digests(Path("data"))


@pytest.mark.fault(16, 17, 18)
@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"passages": [PASSAGES[0], {"id": "p2"}]}, r"passages\.jsonl:2: passage without text \(text is missing\)"),
        ({"passages": [PASSAGES[0], {"id": "p2", "text": " \x00 "}]}, r"passages\.jsonl:2: passage without text"),
        ({"passages": [*PASSAGES, PASSAGES[0]]}, "passage id 'p1' stands twice, as passages 1 and 3"),
        ({"passages": [PASSAGES[0], b"{broken"]}, r"passages\.jsonl:2: not JSON"),
        (
            {"passages": [PASSAGES[0], b'\xef\xbb\xbf{"id": "p2"}']},
            r"passages\.jsonl:2: not JSON \(Unexpected UTF-8 BOM",
        ),
        (
            {"passages": [b'{"id": "p1", "text": "x", "title": NaN}']},
            r"passages\.jsonl:1: passage without title \(title is nan",
        ),
        ({"passages": [b"[1, 2]"]}, r"passages\.jsonl:1: a list, not an object a line; let its"),
        ({"passages": [b'{"id": "\xff"}']}, r"passages\.jsonl:1: not UTF-8; convert the file to UTF-8"),
        ({"passages": []}, "no passages"),
        (
            {"train": [{**QUESTION, "supporting": ["p7"]}]},
            "1 supporting ids of train .* 'q1' names 'p7'.*; add the passages or drop the questions",
        ),
        ({"test": [{**OTHER, "context_ids": ["p8"]}]}, "1 context_ids ids of test .* names 'p8'"),
        ({"train": [QUESTION, QUESTION]}, "question id 'q1' stands twice"),
        ({"train": [{**QUESTION, "answers": "Ada"}]}, r"train\.jsonl:1: answers is 'Ada'; expected a list of strings"),
        ({"train": [{**QUESTION, "answers": [], "supporting": []}]}, "neither answers nor supporting"),
        ({"train": [{"id": "q1"}]}, r"train\.jsonl:1: question without question"),
        ({"test": []}, "no test questions"),
    ],
)
def test_wrong_input_is_one_line_and_changes_nothing(change: dict[str, Any], line: str) -> None:
    run(write())
    before = digests(Path("data"))
    with pytest.raises(CorpusError, match=line) as error:
        run(write(**change))
    assert "\n" not in str(error.value)
    assert before == digests(Path("data"))


BAD = [
    b"{broken",
    b'{"id": "\xff"}',
    {"id": "p9"},
    {"id": "p1", "text": "again"},
    [1],
    b'{"id": "p8", "text": "\\ud800"}',
]


@pytest.mark.fault(17)
def test_bad_passages_are_left_out_and_noted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [PASSAGES[0], *BAD, PASSAGES[1]]
    counts = run(write(rows, bad_passages=6))
    assert (counts["passages"], counts["left_out"]) == (2, 6)
    assert "accepted 2 passages; left out 6, see data/corpus/left_out.txt" in capsys.readouterr().out
    lines = Path("data/corpus/left_out.txt").read_text().splitlines()
    assert [line.split(":")[1] for line in lines] == ["2", "3", "4", "5", "6", "7"]
    for line, reason in zip(lines[1:4], ("not UTF-8; convert the file", "without text", "stands twice"), strict=True):
        assert reason in line
    with pytest.raises(CorpusError, match=r"5 before it were left out, as many as download\.bad_passages"):
        run(write(rows, bad_passages=5))
    assert len(Passages.open(Path("data/corpus"))) == 2


@pytest.mark.fault(18)
def test_questions_of_gold_that_is_not_there_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    half, none = {**QUESTION, "supporting": ["p1", "p7"]}, {**OTHER, "id": "q3", "supporting": ["p8"]}
    train = [{**half, "id": "half"}, {**QUESTION, "answers": ["Ada"], "supporting": [], "question": "Who?"}]
    params = write(train=train, test=[OTHER, none], missing_gold="drop")
    data = read_data(params)
    counts = run(params)
    assert asked("train") == ["q1"] and asked("test") == ["q2"]
    assert [counts[f"{split}_questions_without_their_passages"] for split in ("train", "test")] == [1, 1]
    assert data.gone == {"train": ["half"], "test": ["q3"]} and [q.id for q in data.splits.test] == ["q2"]
    line = "left out 1 train questions with a gold passage that is not in the corpus (first: 'half')"
    assert line in capsys.readouterr().out
    with pytest.raises(CorpusError, match=r"1 supporting ids of train .* \(download\.missing_gold: drop\)$"):
        run(write(train=train))


@pytest.mark.fault(17)
@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        ("nowhere.jsonl", None, r"nowhere\.jsonl is missing"),
        (
            "cut.jsonl.gz",
            lambda: gzip.compress(b"".join(b'{"id": "p%d", "text": "x"}\n' % n for n in range(99)))[:-9],
            r"damaged gzip after line \d",
        ),
        ("p.jsonl.GZ", lambda: gzip.compress(b"{}"), r"p\.jsonl\.GZ:1: packed by gzip; let its name end in \.gz"),
        (
            "bomb.jsonl.gz",
            lambda: gzip.compress(b'{"id": "p1", "text": "' + b"a" * (65 << 20) + b'"}', 1),
            r"^bomb\.jsonl\.gz:1: a line of more than 64 MiB; expected one object a",
        ),
        (
            "p.jsonl.zst",
            lambda: b"\x28\xb5\x2f\xfd\x04",
            r"p\.jsonl\.zst:1: packed by zstd; unpack it, or pack it by gzip",
        ),
        ("p.jsonl", lambda: bz2.compress(b"{}"), r"p\.jsonl:1: packed by bzip2; unpack it, or pack it by gzip as"),
        ("p.jsonl.xz", lambda: lzma.compress(b"{}"), r"p\.jsonl\.xz:1: packed by xz; unpack it, or pack it by gzip as"),
        ("p.zip", lambda: b"PK\x03\x04", r"p\.zip:1: packed by zip; unpack it, or pack it by gzip as"),
        (
            "p.csv",
            lambda: b"id,text\n",
            r"^p\.csv: a table; write its rows as JSON lines \(\.jsonl\), an object a line",
        ),
        ("p.jsonl", lambda: b"PAR1\x15", r"p\.jsonl:1: a table of parquet; let its name end in \.parquet$"),
        ("p.arrow", lambda: b"ARROW1\0\0", r"p\.arrow:1: a table of Arrow; write its rows as \.parquet$"),
        (
            "p.jsonl",
            lambda: b'[\n  {"id": 1}\n]',
            r"p\.jsonl:1: a list, not an object a line; let its name end in \.json$",
        ),
        ("p.jsonl", lambda: b"<!DOCTYPE html>", r"p\.jsonl:1: a page of HTML or XML; fetch the file again$"),
        (
            "lfs.parquet",
            lambda: POINTER,
            r"^lfs\.parquet: a pointer of Git LFS in place of the file; run `git lfs pull`$",
        ),
        ("corpus.parquet", lambda: b"PAR1 no table", r"corpus\.parquet: cannot be read as parquet \(.*\); fetch the"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name: str, data: Callable[[], bytes] | None, line: str) -> None:
    params = write()
    if data:
        Path(name).write_bytes(data())
    with pytest.raises(CorpusError, match=line):
        run_with(params, name)
    assert not Path("data").exists()


@pytest.mark.fault(18)
def test_white_space_is_folded_alike_in_ids_and_in_names_of_ids() -> None:
    odd = " p1\n\u2028\x1b"
    graded = {"id": "q2", "question": "Where is Acme?", "context_ids": [odd, "p2"], "grades": {odd: 2}}
    run(write([{**PASSAGES[0], "id": odd}, PASSAGES[1]], [{**QUESTION, "supporting": [odd]}], [graded]))
    assert Passages.open(Path("data/corpus")).rows_of(["p1"]) == {"p1": 0}
    (question,) = questions("test")
    assert question.gold_ids == ("p1",) and question.candidate_ids == ("p1", "p2")


def test_validation_questions_are_drawn_from_those_of_training() -> None:
    assert run(write(train=MANY))["validation_questions"] == 0 == len(asked("validation"))
    counts = run(write(train=[*MANY, {**OTHER, "id": "again"}], validation_questions=3))
    assert (counts["train_questions"], counts["validation_questions"]) == (5, 3)
    drawn = asked("validation")
    assert sorted([*asked("train"), *drawn]) == [f"q{number}" for number in range(8)] and drawn != ["q0", "q1", "q2"]
    run(write(train=MANY, validation_questions=3))
    assert asked("validation") == drawn, "the same ones again"
    run(write(train=MANY, validation_questions=3, train_questions=4))
    assert (len(asked("train")), len(asked("validation"))) == (4, 3), "as many to train with as were asked for"
    with pytest.raises(CorpusError, match="validation_questions 8 leaves none of 8 training questions; lower it"):
        run(write(train=MANY, validation_questions=8))


def test_validation_questions_of_ones_own_stand_in_no_other_split() -> None:
    own = [{**MANY[0], "id": "v0"}, {**OTHER, "id": "v1"}, {**MANY[1], "id": "v2"}]
    write_rows("mine.jsonl", own)
    counts = run(write(train=MANY, validation=["mine.jsonl"]))
    assert asked("validation") == ["v0", "v2"] and asked("train") == [f"q{number}" for number in range(2, 8)]
    assert asked("test") == ["q2"], "test questions stay as they are"
    assert counts["validation_questions_dropped_because_in_test"] == 1
    assert counts["train_questions_dropped_because_in_validation"] == 2
    run(write(train=MANY, validation=["mine.jsonl"], validation_questions=2, seed=1))
    assert len(asked("validation")) == 1 or asked("validation") == ["v0", "v2"], "v1 is a test question"


@pytest.mark.fault(31)
def test_a_corpus_on_another_disk_is_replaced(place: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or not os.access(shared, os.W_OK) or shared.stat().st_dev == place.stat().st_dev:
        pytest.skip("no other disk")
    with tempfile.TemporaryDirectory(dir=shared) as disk:
        Path("data").symlink_to(disk)
        for count in (200, 201):
            run(FunctionDatasetParams(**encyclopaedia(passages=count, train_questions=8, test_questions=8)))
            assert len(Passages.open(Path("data/corpus"))) == count
            assert sorted(os.listdir(disk)) == ["corpus", "questions"] and not os.listdir("work")


def test_rows_of_flashrag_and_graded_rows_are_read() -> None:
    passages = ({"id": "p1", "contents": '"Ada Brown"\nAda Brown founded Acme.'}, PASSAGES[1])
    train = {"id": "q1", "question": "Who founded Acme?", "golden_answers": ["Ada"]}
    test = {"id": "q2", "question": "Where is Acme?", "grades": {"p1": 1, "p2": 2}}
    run(write(passages, (train,), (test,)))
    assert Passages.open(Path("data/corpus")).contents(0, 1) == ["Ada Brown: Ada Brown founded Acme."]
    assert questions("train")[0].answers == ("Ada",)
    (graded,) = questions("test")
    assert (graded.gold_ids, graded.grades) == (("p2", "p1"), (2, 1))


def test_a_table_with_columns_of_other_names_is_read(tmp_path: Path) -> None:
    columns = {"id": "_id", "text": "body", "question": "query", "answers": "answer.text"}
    params = write().model_copy(update={"columns": columns, "passages": ("corpus.parquet",), "train": ("t.parquet",)})
    rows: list[dict[str, Any]] = [{"_id": "p1", "body": "Ada founded Acme."}, {"_id": "p2", "body": "In Ashford."}]
    write_rows("corpus.parquet", rows)
    write_rows("t.parquet", [{"_id": "q1", "query": "Who founded Acme?", "answer": {"text": ["Ada"]}}])
    run(params)
    assert Passages.open(Path("data/corpus")).contents(0, 2) == ["Ada founded Acme.", "In Ashford."]
    (question,) = questions("train")
    assert (question.id, question.text, question.answers) == ("q1", "Who founded Acme?", ("Ada",))
