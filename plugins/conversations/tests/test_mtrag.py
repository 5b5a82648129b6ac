"""MTRAG's files, as its repository has them."""

from pathlib import Path

import pytest
from downloading import passages, questions, run, write_rows

from harr.errors import CorpusError
from harr.params.download import FunctionDatasetParams
from harr.types import Hop

ASKED = ["Who founded Acme?", "Where was she born?", "And when?"]


def make_checkout(root: Path, conversations: int = 12) -> None:
    tasks = root / "mtrag-human/retrieval_tasks/fiqa"
    rows = [
        {"_id": f"c{name}<::>{turn}", "text": "\n".join(f"|user|: {text}" for text in (f"Of {name}?", *ASKED[:turn]))}
        for name in range(conversations)
        for turn in range(1, 4)
    ]
    write_rows(tasks / "fiqa_questions.jsonl", rows)
    write_rows(tasks / "fiqa_rewrite.jsonl", [row | {"text": f"|user|: Whole {row['_id']}"} for row in rows])
    (tasks / "qrels").mkdir()
    lines = [
        "query-id\tcorpus-id\tscore",
        *(f"{row['_id']}\tp-0-9\t{int(not row['_id'].endswith('2'))}" for row in rows),
    ]
    (tasks / "qrels/dev.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_rows(root / "corpora/passage_level/fiqa.jsonl", [{"_id": "p-0-9", "title": "Acme", "text": "By Ada."}])


def section(root: Path) -> FunctionDatasetParams:
    settings = {"folder": str(root), "domains": ["fiqa"]}
    return FunctionDatasetParams(
        dataset="function", function="harr_conversations.mtrag:DATASET", validation_questions=2, settings=settings
    )


@pytest.mark.usefixtures("workplace")
def test_a_judged_turn_is_a_question_with_what_was_asked_before(tmp_path: Path) -> None:
    make_checkout(tmp_path / "mtrag")
    run(section(tmp_path / "mtrag"))
    assert [(p.id, p.content, p.source) for p in passages()] == [("p-0-9", "Acme: By Ada.", "fiqa")]
    splits = {split: questions(split) for split in ("train", "validation", "test")}
    assert sum(map(len, splits.values())) == 24 and all(splits.values())  # turn 2 is not judged
    names = {split: {question.id.partition("<")[0] for question in of} for split, of in splits.items()}
    assert not names["train"] & names["test"] and not names["train"] & names["validation"]
    last = next(question for question in splits["test"] if question.id.endswith("3"))
    name = last.id.partition("<")[0][1:]
    assert (last.text, last.gold_ids, last.setting, last.level) == ("And when?", ("p-0-9",), "fiqa", "turn 4")
    assert last.history == tuple(Hop(text, "") for text in (f"Of {name}?", *ASKED[:2]))
    assert last.notes == {"rewrite": f"Whole {last.id}"}


@pytest.mark.usefixtures("workplace")
def test_another_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"qrels/dev\.tsv cannot be read .*; folder must be a checkout of MTRAG"):
        run(section(tmp_path))
    make_checkout(tmp_path / "mtrag")
    file = tmp_path / "mtrag/mtrag-human/retrieval_tasks/fiqa/fiqa_questions.jsonl"
    write_rows(file, [{"_id": "c<::>1", "text": "Who?"}])
    with pytest.raises(CorpusError, match="'Who\\?' does not begin with"):
        run(section(tmp_path / "mtrag"))
