"""Loading local files: what is right is stored, what is wrong is one clear line and changes nothing."""

import gzip
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from digests import digests
from pyarrow import parquet

from harr.corpus.passages import Passages, read_questions
from harr.datasets.download import download
from harr.errors import CorpusError
from harr.params.download import JsonlParams, WorldParams

PASSAGES = (
    {"id": "p1", "title": "Ada Brown", "text": "Ada Brown  founded\nAcme.", "set": ["a", "b"]},
    {"id": "p2", "title": "", "text": "Acme is in Ashford.", "set": ["b"]},
)
QUESTION = {"id": "q1", "question": "Who founded Acme?", "answers": ["Ada Brown"], "supporting": ["p1"]}
OTHER = {**QUESTION, "id": "q2", "question": "Where is Acme?", "supporting": ["p2"], "context_ids": ["p1", "p2"]}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., JsonlParams]:
    """Write files of rows (or raw lines) into an empty working folder and name them in a section."""
    monkeypatch.chdir(tmp_path)

    def make(passages: Any = PASSAGES, train: Any = (QUESTION,), test: Any = (OTHER,), **more: Any) -> JsonlParams:
        for name, rows in (("corpus", passages), ("train", train), ("test", test)):
            lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
            Path(f"{name}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        files = {"passages": ["corpus.jsonl"], "train": ["train.jsonl"], "test": ["test.jsonl"]}
        return JsonlParams(dataset="jsonl", **{**files, **more})

    return make


def run(params: JsonlParams | WorldParams) -> dict[str, float]:
    return download(params, Path("data/corpus"), Path("data/questions"), Path("work/download"))


def test_rows_become_passages_and_questions(write: Callable[..., JsonlParams]) -> None:
    counts = run(write())
    assert (counts["passages"], counts["train_questions"], counts["test_questions"]) == (2, 1, 1)
    stored = Passages.open(Path("data/corpus"))
    first, second = stored.take([0, 1])
    assert first.content == "Ada Brown: Ada Brown founded Acme."
    assert second.content == "Acme is in Ashford."
    assert stored.rows_of(["p2", "p9", "p1"]) == {"p2": 1, "p1": 0}
    (question,) = read_questions(Path("data/questions/test.jsonl"))
    assert question.gold_ids == ("p2",) and question.candidate_ids == ("p1", "p2")


def test_gzip_bom_and_windows_line_ends_are_read(write: Callable[..., JsonlParams]) -> None:
    params = write()
    text = "\r\n".join(json.dumps(row) for row in PASSAGES)
    Path("corpus.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    assert run(params.model_copy(update={"passages": ("corpus.jsonl.gz",)}))["passages"] == 2


def test_where_keeps_rows_and_holds_back_from_the_index(write: Callable[..., JsonlParams]) -> None:
    run(write(searchable_where={"set": "a"}))
    assert Passages.open(Path("data/corpus")).searchable_rows().tolist() == [0]


def test_a_training_question_that_is_also_a_test_question_is_left_out(write: Callable[..., JsonlParams]) -> None:
    counts = run(write(train=[QUESTION, {**OTHER, "id": "again"}]))
    assert counts["train_questions"] == 1
    assert counts["train_questions_dropped_because_in_test"] == 1


def test_equal_input_gives_equal_bytes(write: Callable[..., JsonlParams]) -> None:
    params = write()
    run(params)
    before = digests(Path("data"))
    run(params)
    assert before == digests(Path("data"))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"passages": [PASSAGES[0], {"id": "p2", "title": "x"}]},
            r"corpus\.jsonl:2: passage without text \(text is missing\)",
        ),
        ({"passages": [PASSAGES[0], {"id": "p2", "text": " \x00 "}]}, r"corpus\.jsonl:2: passage without text"),
        ({"passages": [*PASSAGES, PASSAGES[0]]}, "passage id 'p1' stands twice, as passages 1 and 3"),
        ({"passages": [PASSAGES[0], b"{broken"]}, r"corpus\.jsonl:2: not JSON"),
        ({"passages": [b"[1, 2]"]}, r"corpus\.jsonl:1: a JSON list; expected one object a line"),
        ({"passages": [b'{"id": "\xff"}']}, r"corpus\.jsonl:1: not UTF-8; convert the file to UTF-8"),
        ({"passages": []}, "no passages"),
        ({"train": [{**QUESTION, "supporting": ["p7"]}]}, "1 supporting ids of train .* question 'q1' names 'p7'"),
        ({"test": [{**OTHER, "context_ids": ["p8"]}]}, "1 context_ids ids of test .* names 'p8'"),
        ({"train": [QUESTION, QUESTION]}, "question id 'q1' stands twice"),
        ({"train": [{**QUESTION, "answers": "Ada"}]}, r"train\.jsonl:1: answers is 'Ada'; expected a list of strings"),
        ({"train": [{**QUESTION, "answers": [], "supporting": []}]}, "neither answers nor supporting"),
        ({"train": [{"id": "q1"}]}, r"train\.jsonl:1: question without question"),
        ({"test": []}, "no test questions"),
        ({"passages_file": "nowhere.jsonl"}, r"nowhere\.jsonl is missing"),
    ],
)
def test_wrong_input_is_one_line_and_changes_nothing(
    write: Callable[..., JsonlParams], change: dict[str, Any], line: str
) -> None:
    run(write())
    before = digests(Path("data"))
    missing = change.get("passages_file")
    params = write(**{key: rows for key, rows in change.items() if key != "passages_file"})
    if missing:
        params = params.model_copy(update={"passages": (missing,)})
    with pytest.raises(CorpusError, match=line) as error:
        run(params)
    assert "\n" not in str(error.value)
    assert before == digests(Path("data"))


def test_a_truncated_gzip_is_named(write: Callable[..., JsonlParams]) -> None:
    params = write()
    rows = "\n".join(json.dumps({"id": f"p{i}", "text": f"text {i} {i * 7919}"}) for i in range(3000))
    Path("cut.jsonl.gz").write_bytes(gzip.compress(rows.encode())[:-2000])
    with pytest.raises(CorpusError, match=r"cut\.jsonl\.gz: damaged gzip after line \d+"):
        run(params.model_copy(update={"passages": ("cut.jsonl.gz",)}))
    assert not Path("data").exists()


def test_a_gzip_whose_name_hides_it_is_named(write: Callable[..., JsonlParams]) -> None:
    params = write()
    Path("p.jsonl.GZ").write_bytes(gzip.compress(Path("corpus.jsonl").read_bytes()))
    with pytest.raises(CorpusError, match=r"p\.jsonl\.GZ:1: packed by gzip; let its name end in \.gz"):
        run(params.model_copy(update={"passages": ("p.jsonl.GZ",)}))


def test_a_line_without_end_is_named_before_it_fills_the_memory(write: Callable[..., JsonlParams]) -> None:
    params = write()
    Path("bomb.jsonl.gz").write_bytes(gzip.compress(b'{"id": "p1", "text": "' + b"a" * (65 << 20) + b'"}'))
    with pytest.raises(CorpusError, match=r"^bomb\.jsonl\.gz:1: a line of more than 64 MiB; expected one object a"):
        run(params.model_copy(update={"passages": ("bomb.jsonl.gz",)}))
    assert not Path("data").exists()


def test_questions_name_passages_by_the_same_letters_whatever_white_space_is_folded(
    write: Callable[..., JsonlParams],
) -> None:
    odd = " p1\n\u2028\x1b"
    graded = {key: value for key, value in OTHER.items() if key != "supporting"} | {"context_ids": [odd, "p2"]}
    run(
        write(
            passages=[{**PASSAGES[0], "id": odd}, PASSAGES[1]],
            train=[{**QUESTION, "supporting": [odd]}],
            test=[{**graded, "grades": {odd: 2}}],
        )
    )
    assert Passages.open(Path("data/corpus")).rows_of(["p1"]) == {"p1": 0}
    (question,) = read_questions(Path("data/questions/test.jsonl"))
    assert question.gold_ids == ("p1",) and question.candidate_ids == ("p1", "p2")


def test_the_world_is_a_data_set_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts = run(WorldParams(dataset="world", passages=300, train_questions=20, test_questions=10))
    assert (counts["passages"], counts["train_questions"], counts["test_questions"]) == (300, 20, 10)


def asked(split: str) -> list[str]:
    return [question.id for question in read_questions(Path(f"data/questions/{split}.jsonl"))]


MANY = [{**QUESTION, "id": f"q{number}", "question": f"Who founded Acme {number}?"} for number in range(8)]


def test_validation_questions_are_drawn_from_those_of_training(write: Callable[..., JsonlParams]) -> None:
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


def test_validation_questions_of_ones_own_stand_in_no_other_split(write: Callable[..., JsonlParams]) -> None:
    own = [{**MANY[0], "id": "v0"}, {**OTHER, "id": "v1"}, {**MANY[1], "id": "v2", "set": "x"}]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
    counts = run(write(train=MANY, validation=["mine.jsonl"]))
    assert asked("validation") == ["v0", "v2"] and asked("train") == [f"q{number}" for number in range(2, 8)]
    assert asked("test") == ["q2"], "test questions stay as they are"
    assert counts["validation_questions_dropped_because_in_test"] == 1
    assert counts["train_questions_dropped_because_in_validation"] == 2
    run(write(train=MANY, validation=["mine.jsonl"], validation_where={"set": "x"}))
    assert asked("validation") == ["v2"]
    run(write(train=MANY, validation=["mine.jsonl"], validation_questions=2, seed=1))
    assert len(asked("validation")) == 1 or asked("validation") == ["v0", "v2"], "v1 is a test question"


def test_without_validation_questions_the_others_are_as_ever(write: Callable[..., JsonlParams]) -> None:
    assert run(write(train=MANY))["validation_questions"] == 0
    assert Path("data/questions/validation.jsonl").read_text() == "" and len(asked("train")) == 8


def test_the_world_validates_with_entities_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts = run(WorldParams(dataset="world", passages=600, train_questions=20, test_questions=10))
    before = Path("data/questions/test.jsonl").read_text()
    section = WorldParams(
        dataset="world", passages=600, train_questions=20, test_questions=10, validation_questions=10, hops=(2, 3)
    )
    counts = run(section.model_copy(update={"hops": (2, 3, 4)}))
    assert (counts["train_questions"], counts["validation_questions"], counts["test_questions"]) == (20, 10, 10)
    assert Path("data/questions/test.jsonl").read_text() == before


def test_a_corpus_on_another_disk_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or not os.access(shared, os.W_OK) or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no other disk")
    monkeypatch.chdir(tmp_path)
    with tempfile.TemporaryDirectory(dir=shared) as disk:
        Path("data").symlink_to(disk)
        for passages in (200, 210):
            run(WorldParams(dataset="world", passages=passages, train_questions=8, test_questions=8))
            assert len(Passages.open(Path("data/corpus"))) == passages
            assert sorted(os.listdir(disk)) == ["corpus", "questions"] and not os.listdir("work")


def test_rows_of_flashrag_and_graded_rows_are_read(write: Callable[..., JsonlParams]) -> None:
    passages = ({"id": "p1", "contents": '"Ada Brown"\nAda Brown founded Acme.'}, PASSAGES[1])
    train = {"id": "q1", "question": "Who founded Acme?", "golden_answers": ["Ada"]}
    test = {"id": "q2", "question": "Where is Acme?", "grades": {"p1": 1, "p2": 2}}
    run(write(passages, (train,), (test,)))
    assert Passages.open(Path("data/corpus")).contents(0, 1) == ["Ada Brown: Ada Brown founded Acme."]
    assert read_questions(Path("data/questions/train.jsonl"))[0].answers == ("Ada",)
    (graded,) = read_questions(Path("data/questions/test.jsonl"))
    assert (graded.gold_ids, graded.grades) == (("p2", "p1"), (2, 1))


def test_a_table_with_columns_of_other_names_is_read(write: Callable[..., JsonlParams], tmp_path: Path) -> None:
    columns = {"id": "_id", "text": "body", "question": "query", "answers": "answer.text"}
    params = write().model_copy(update={"columns": columns, "passages": ("corpus.parquet",), "train": ("t.parquet",)})
    rows: list[dict[str, Any]] = [{"_id": "p1", "body": "Ada founded Acme."}, {"_id": "p2", "body": "In Ashford."}]
    parquet.write_table(pa.Table.from_pylist(rows), "corpus.parquet")
    asked = {"_id": "q1", "query": "Who founded Acme?", "answer": {"text": ["Ada"]}}
    parquet.write_table(pa.Table.from_pylist([asked]), "t.parquet")
    run(params)
    assert Passages.open(Path("data/corpus")).contents(0, 2) == ["Ada founded Acme.", "In Ashford."]
    (question,) = read_questions(Path("data/questions/train.jsonl"))
    assert (question.id, question.text, question.answers) == ("q1", "Who founded Acme?", ("Ada",))
    Path("corpus.parquet").write_bytes(b"PAR1 no table")
    with pytest.raises(CorpusError, match=r"corpus\.parquet: cannot be read as parquet \(.*\); fetch the file again"):
        run(params)
