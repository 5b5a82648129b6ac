"""Files of questions as people have them, and what is told of them before training."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harr.corpus.passages import write_questions
from harr.datasets.local import read_questions_where
from harr.datasets.preview import preview, read_split
from harr.errors import CorpusError
from harr.params.download import JsonlParams, WorldParams

HOTPOTQA = Path(__file__).parents[4] / "shared/data/hotpotqa"
ROWS = [
    {"id": "1", "question": "Who founded Acme?", "answer": "Ada Brown", "level": "easy"},
    {"id": "2", "question": "Where is Acme?", "answers": ["Ashford", "Ashford, Kent"], "level": "hard"},
    {"id": "3", "question": "Where was the founder of Acme born?", "answer": "Bath", "level": "hard"},
]


@pytest.fixture
def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., JsonlParams]:
    """Write questions into a .json or .jsonl file and name it as training data."""
    monkeypatch.chdir(tmp_path)

    def make(rows: Any, name: str = "mine.json", **more: Any) -> JsonlParams:
        Path("corpus.jsonl").write_text(json.dumps({"id": "p", "text": "Ada Brown founded Acme."}))
        Path("test.jsonl").write_text(json.dumps({"id": "t", "question": "Where is Acme?", "answer": "Ashford"}))
        text = "\n".join(map(json.dumps, rows)) if name.endswith(".jsonl") else json.dumps(rows)
        Path(name).write_text(text)
        return JsonlParams(dataset="jsonl", passages=("corpus.jsonl",), train=(name,), test=("test.jsonl",), **more)

    return make


@pytest.mark.parametrize("name", ["mine.json", "mine.jsonl"])
def test_what_would_be_trained_on_is_told_and_exported(section: Callable[..., JsonlParams], name: str) -> None:
    params = section(ROWS, name)
    questions, left_out = read_split(params, "train")
    shown = preview(params, "train", questions, left_out, examples=1)
    assert (shown.questions, shown.left_out, shown.levels, shown.kinds) == (2, 1, {"easy": 1, "hard": 1}, {})
    assert shown.examples == [{"id": "1", "question": "Who founded Acme?", "answers": ["Ada Brown"]}]
    assert shown.corpus == "the files corpus.jsonl" and not Path("data").exists()
    write_questions(questions, Path("exported.jsonl"))
    assert list(read_questions_where(["exported.jsonl"], {})) == questions


def test_where_and_limit_choose_by_the_seed(section: Callable[..., JsonlParams]) -> None:
    params = section(ROWS, train_where={"level": "hard"}, train_questions=1)
    seeds = [params.model_copy(update={"seed": seed}) for seed in range(8)]
    drawn = {tuple(q.id for q in read_split(own, "train")[0]) for own in seeds}
    assert drawn == {(), ("3",)}, "one of the hard ones is a test question"
    assert read_split(seeds[3], "train") == read_split(seeds[3], "train")


def test_files_in_several_folders_are_several_data_sets_and_settings_of_one_are_told_apart(tmp_path: Path) -> None:
    rows = [{"id": f"{n}", "question": "Who?", "answer": "Ada", "setting": "open" if n else "given"} for n in range(2)]
    for folder, own in (
        ("hotpotqa", rows),
        ("musique", [{**rows[0], "id": "m", "setting": None, "labels": "official"}]),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
    files = [str(tmp_path / name / "dev.jsonl") for name in ("hotpotqa", "musique")]
    read = [question.setting for question in read_questions_where(files, {})]
    assert read == ["hotpotqa given", "hotpotqa open", "musique official"]
    alone = list(read_questions_where(files[:1], {}))
    assert [question.setting for question in alone] == ["given", "open"]
    write_questions(alone, tmp_path / "kept.jsonl")
    assert list(read_questions_where([str(tmp_path / "kept.jsonl")], {})) == alone


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (
            [*ROWS, {**ROWS[0], "question": "Why?"}],
            r"mine\.json: row 4: question id '1' stands twice, first at .* 1",
        ),
        ([ROWS[0], {"question": "Who?", "answer": "Ada"}], r"mine\.json: row 2: question without id \(id is missing\)"),
        ([{"id": "1", "question": "Who?"}], r"row 1: question '1' has neither answers nor supporting.*give answer"),
        ([{"id": "1", "question": "Who?", "answer": ""}], r"row 1: question without answer \(answer is ''\)"),
        ([{"id": "1", "answer": "Ada"}], "row 1: question without question"),
        (["Who?"], "row 1 is a JSON str; expected an object"),
        ({"data": ROWS}, "a JSON dict; expected a list of objects"),
    ],
)
def test_a_wrong_row_is_one_line_with_its_number(section: Callable[..., JsonlParams], rows: Any, line: str) -> None:
    with pytest.raises(CorpusError, match=line) as caught:
        read_split(section(rows), "train")
    assert "\n" not in str(caught.value)


def test_json_lines_in_a_json_file_are_recognised(section: Callable[..., JsonlParams]) -> None:
    params = section(ROWS)
    Path("mine.json").write_text("\n".join(map(json.dumps, ROWS)))
    with pytest.raises(CorpusError, match=r"mine\.json: not JSON .*name a file with an object a line \.jsonl"):
        read_split(params, "train")


def test_a_made_world_is_told(section: Callable[..., JsonlParams]) -> None:
    params = WorldParams(dataset="world", passages=200, train_questions=20, test_questions=10, hops=(1, 2))
    questions, left_out = read_split(params, "train")
    shown = preview(params, "train", questions, left_out, examples=2)
    assert shown.questions + shown.left_out == 20 and len(shown.examples) == 2
    assert "200 passages made from seed 0" in shown.corpus and sum(shown.kinds.values()) == shown.questions


@pytest.mark.skipif(not HOTPOTQA.is_dir(), reason="no files of HotpotQA beside the project")
def test_real_rows_of_hotpotqa() -> None:
    files = {split: (str(HOTPOTQA / f"{split}.jsonl.gz"),) for split in ("train", "dev")}
    params = JsonlParams(
        dataset="jsonl", passages=("none",), train=files["train"], test=files["dev"], train_questions=500
    )
    params = params.model_copy(update={"passages": ()})  # a preview reads none
    questions, left_out = read_split(params, "train")
    shown = preview(params, "train", questions, left_out, examples=3)
    assert (shown.questions + shown.left_out, set(shown.kinds)) == (500, {"bridge", "comparison"})
    assert all(question.answers and len(question.gold_ids) >= 2 for question in questions)
