"""People's own files of questions, and what is said of them before training."""

import json
from pathlib import Path
from typing import Any

import pytest
from downloading import write_rows

from harr.corpus.passages import write_questions
from harr.datasets.local import read_questions_where
from harr.datasets.preview import preview, read_data
from harr.errors import CorpusError
from harr.params.download import JsonlParams

ROWS = [
    {"id": "1", "question": "Who founded Acme?", "answer": "Ada Brown", "level": "easy"},
    {"id": "2", "question": "Where is Acme?", "answers": ["Ashford", "Ashford, Kent"], "level": "hard"},
    {"id": "3", "question": "Where was the founder of Acme born?", "answer": "Bath", "level": "hard"},
]


def section(rows: Any, name: str = "mine.json", **more: Any) -> JsonlParams:
    """Write questions to a .json or .jsonl file and return the section that names it as training data."""
    corpus = write_rows("corpus.jsonl", [{"id": "p", "text": "Ada Brown founded Acme."}])
    test = write_rows("test.jsonl", [{"id": "t", "question": "Where is Acme?", "answer": "Ashford"}])
    if name.endswith(".jsonl"):
        write_rows(name, rows)
    else:
        Path(name).write_text(rows if isinstance(rows, str) else json.dumps(rows))
    return JsonlParams(dataset="jsonl", passages=(corpus,), train=(name,), test=(test,), **more)


@pytest.mark.parametrize("name", ["mine.json", "mine.jsonl"])
def test_what_would_be_trained_on_is_shown_and_exported(name: str) -> None:
    params = section(ROWS, name)
    questions, left_out = read_data(params).splits.of("train")
    shown = preview(params, "train", questions, left_out, examples=1)
    assert (shown.questions, shown.left_out, shown.levels, shown.kinds) == (2, 1, {"easy": 1, "hard": 1}, {})
    assert shown.examples == [{"id": "1", "question": "Who founded Acme?", "answers": ["Ada Brown"]}]
    assert shown.corpus == "the files corpus.jsonl" and not Path("data").exists()
    write_questions(questions, Path("exported.jsonl"))
    assert list(read_questions_where(["exported.jsonl"], {})) == questions


def test_where_and_limit_choose_by_the_seed() -> None:
    params = section(ROWS, train_where={"level": "hard"}, train_questions=1)
    seeds = [params.model_copy(update={"seed": seed}) for seed in range(8)]
    drawn = {tuple(q.id for q in read_data(own).splits.of("train")[0]) for own in seeds}
    assert drawn == {(), ("3",)}, "one of the hard ones is a test question"
    assert read_data(seeds[3]).splits.of("train") == read_data(seeds[3]).splits.of("train")


def test_files_in_several_folders_are_several_data_sets_and_settings_of_one_are_told_apart() -> None:
    rows = [{"id": f"{n}", "question": "Who?", "answer": "Ada", "setting": "open" if n else "given"} for n in range(2)]
    other = {**rows[0], "id": "m", "setting": None, "labels": "official"}
    for folder, own in (("hotpotqa", rows), ("musique", [other])):
        write_rows(f"{folder}/dev.jsonl", own)
    files = ["hotpotqa/dev.jsonl", "musique/dev.jsonl"]
    read = [question.setting for question in read_questions_where(files, {})]
    assert read == ["hotpotqa given", "hotpotqa open", "musique official"]
    alone = list(read_questions_where(files[:1], {}))
    assert [question.setting for question in alone] == ["given", "open"]
    write_questions(alone, Path("kept.jsonl"))
    assert list(read_questions_where(["kept.jsonl"], {})) == alone


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([*ROWS, {**ROWS[0], "question": "Why?"}], r"mine\.json: row 4: question id '1' stands twice, first at .* 1"),
        ([ROWS[0], {"question": "Who?", "answer": "Ada"}], r"mine\.json: row 2: question without id \(id is missing\)"),
        ([{"id": "1", "question": "Who?"}], r"row 1: question '1' has neither answers nor supporting.*give answer"),
        ([{"id": "1", "question": "Who?", "answer": ""}], r"row 1: question without answer \(answer is '', a str\)"),
        ([{"id": "1", "answer": "Ada"}], "row 1: question without question"),
        (["Who?"], "row 1 is a JSON str; expected an object"),
        ({"data": ROWS}, "a JSON dict; expected a list of objects"),
        ("{}\n{}", r"mine\.json: not JSON .*name a file with an object a line \.jsonl"),
    ],
)
def test_a_wrong_row_is_one_line_with_its_number(rows: Any, line: str) -> None:
    with pytest.raises(CorpusError, match=line) as caught:
        read_data(section(rows)).splits.of("train")
    assert "\n" not in str(caught.value)
