"""The hub's own file formats, read from small local copies; nothing is downloaded."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harr.corpus.passages import Passages, read_questions
from harr.datasets.download import download
from harr.datasets.hub import FILES, WIKI18
from harr.errors import CorpusError
from harr.params.download import HubParams

HOTPOT = {
    "id": "h1",
    "question": "Where was the founder of Acme born?",
    "answer": "Ashford",
    "type": "bridge",
    "level": "easy",
    "supporting_facts": {"title": ["Acme", "Ada Brown", "Ada Brown"], "sent_id": [0, 0, 1]},
    "context": {
        "title": ["Ada Brown", "Acme", "Noise"],
        "sentences": [["Ada Brown is a chemist.", " She was born in Ashford."], ["Ada Brown founded Acme."], ["No."]],
    },
}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Where was the founder of Acme born?",
    "answer": "Ashford",
    "answer_aliases": ["Ashford, Kent"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Ada Brown", "paragraph_text": "Born in Ashford.", "is_supporting": True},
        {"idx": 1, "title": "Acme", "paragraph_text": "Founded by Ada Brown.", "is_supporting": True},
        {"idx": 2, "title": "Noise", "paragraph_text": "No.", "is_supporting": False},
    ],
    "question_decomposition": [{"id": 1, "paragraph_support_idx": 1}, {"id": 2, "paragraph_support_idx": 0}],
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(params: HubParams) -> dict[str, float]:
    return download(params, Path("data/corpus"), Path("data/questions"), Path("work/download"))


def titles_of_gold() -> list[str]:
    (question,) = read_questions(Path("data/questions/test.jsonl"))
    passages = Passages.open(Path("data/corpus"))
    return [passages.take([passages.rows_of([pid])[pid]])[0].title for pid in question.gold_ids]


@pytest.mark.parametrize("dataset", ["hotpotqa", "2wikimultihopqa"])
def test_hotpot_parquet(dataset: str) -> None:
    repository, train, test = FILES[dataset]
    for pattern, row in ((train, {**HOTPOT, "id": "h0", "question": "Who founded Acme?"}), (test, HOTPOT)):
        path = Path("hub") / repository / pattern.replace("*", "-00000-of-00001")
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist([row]), path)
    counts = run(HubParams(dataset=dataset, root="hub"))
    assert (counts["passages"], counts["train_questions"], counts["test_questions"]) == (3, 1, 1)
    assert titles_of_gold() == ["Acme", "Ada Brown"]


def test_questions_of_some_levels_are_learnt_from_and_the_limit_counts_those() -> None:
    repository, train, test = FILES["hotpotqa"]
    levels = ["easy", "hard", "medium", "hard", "hard"]
    rows = [{**HOTPOT, "id": f"h{n}", "question": f"Who is {n}?", "level": level} for n, level in enumerate(levels)]
    for pattern, table in ((train, rows), (test, [{**HOTPOT, "level": "hard"}])):
        path = Path("hub") / repository / pattern.replace("*", "-00000-of-00001")
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(table), path)
    run(HubParams(dataset="hotpotqa", root="hub", train_level=("hard",), train_questions=2))
    questions = read_questions(Path("data/questions/train.jsonl"))
    assert [(question.level, question.kind) for question in questions] == [("hard", "bridge")] * 2
    drawn = set()
    for seed in range(8):
        run(HubParams(dataset="hotpotqa", root="hub", train_level=("hard",), train_questions=2, seed=seed))
        drawn.add(tuple(question.id for question in read_questions(Path("data/questions/train.jsonl"))))
    assert drawn == {("h1", "h3"), ("h1", "h4"), ("h3", "h4")}, "drawn by the seed, in their order"
    with pytest.raises(ValueError, match="musique has no levels of difficulty"):
        HubParams(dataset="musique", train_level=("easy",))


def test_musique_keeps_hop_order_and_aliases() -> None:
    repository, train, test = FILES["musique"]
    folder = Path("hub") / repository
    folder.mkdir(parents=True)
    (folder / train).write_text(json.dumps({**MUSIQUE, "id": "2hop__0", "question": "Who?"}) + "\n")
    (folder / test).write_text(json.dumps(MUSIQUE) + "\n")
    run(HubParams(dataset="musique", root="hub"))
    assert titles_of_gold() == ["Acme", "Ada Brown"]
    (question,) = read_questions(Path("data/questions/test.jsonl"))
    assert question.answers == ("Ashford", "Ashford, Kent") and question.kind == "2hop"


def test_a_limit_takes_as_large_a_share_of_every_type_as_of_all() -> None:
    repository, train, test = FILES["musique"]
    folder = Path("hub") / repository
    folder.mkdir(parents=True)
    hops = [2] * 12 + [4] * 6  # a file's first rows are all of one type
    rows = [{**MUSIQUE, "id": f"{count}hop__{n}", "question": f"Who is {n}?"} for n, count in enumerate(hops)]
    (folder / train).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / test).write_text("".join(json.dumps({**row, "question": f"Test {row['id']}"}) + "\n" for row in rows))
    run(HubParams(dataset="musique", root="hub", train_questions=6, test_questions=3))
    for split, count in (("train", 2), ("test", 1)):
        kinds = [question.kind for question in read_questions(Path(f"data/questions/{split}.jsonl"))]
        assert (kinds.count("2hop"), kinds.count("4hop")) == (2 * count, count)


def test_all_four_sets_stand_side_by_side_over_wiki18() -> None:
    """NQ and TriviaQA number their questions alike, so ids begin with the name of the set."""
    for name in ("hotpotqa", "2wikimultihopqa"):
        repository, *files = FILES[name]
        for split, pattern in zip(("train", "test"), files, strict=True):
            path = Path("hub") / repository / pattern.replace("*", "-00000-of-00001")
            path.parent.mkdir(parents=True, exist_ok=True)
            row = {"id": f"{name}-{split}", "question": f"Who is in {name} {split}?", "answer": split, "type": "bridge"}
            given = {"context": {"title": ["A"], "sentences": [["One."]]}, "supporting_facts": {"title": ["A"]}}
            pq.write_table(pa.Table.from_pylist([row | given]), path)
    for name in ("nq", "triviaqa"):
        repository, *files = FILES[name]
        for split, file in zip(("train", "dev"), files, strict=True):
            path = Path("hub") / repository / file
            path.parent.mkdir(parents=True, exist_ok=True)
            row = {"id": f"{split}_0", "question": f"Who, {name} {split}?", "golden_answers": [split]}
            path.write_text(json.dumps(row) + "\n")
    repository, file = WIKI18
    path = Path("hub") / repository / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps({"id": "0", "contents": '"A"\nOne.'}).encode() + b"\n"))
    counts = run(HubParams(dataset="all", root="hub", passages="wiki18"))
    assert counts["train_questions"] == counts["test_questions"] == 4
    questions = read_questions(Path("data/questions/train.jsonl"))
    assert [question.id for question in questions][-2:] == ["nq-train_0", "triviaqa-train_0"]
    assert not any(question.gold_ids or question.candidate_ids for question in questions)


def test_nq_with_wiki18() -> None:
    repository, train, test = FILES["nq"]
    row = {"id": "t0", "question": "who founded acme", "golden_answers": ["Ada Brown"]}
    for name, values in ((train, row), (test, {**row, "id": "t1", "question": "where is acme"})):
        path = Path("hub") / repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values) + "\n")
    wiki = Path("hub").joinpath(*WIKI18)
    wiki.parent.mkdir(parents=True)
    lines = [json.dumps({"id": str(i), "contents": f'"Title {i}"\nText {i} of many'}) for i in range(5)]
    wiki.write_bytes(gzip.compress("\n".join(lines).encode()))
    counts = run(HubParams(dataset="nq", root="hub", passages="wiki18"))
    assert counts["passages"] == 5
    assert Passages.open(Path("data/corpus")).take([3])[0].content == "Title 3: Text 3 of many"


@pytest.mark.parametrize(
    ("params", "line"),
    [
        (HubParams(dataset="nq", root="hub"), "nq has no passages of its own"),
        (HubParams(dataset="hotpotqa", root="hub"), r"no distractor/train\*\.parquet in hub"),
        (HubParams(dataset="musique"), "cannot get musique_ans_v1.0_train.jsonl .* put the files under download.root"),
    ],
)
def test_what_is_not_there_is_one_line(params: HubParams, line: str) -> None:
    with pytest.raises(CorpusError, match=line) as error:
        run(params)
    assert "\n" not in str(error.value)
    assert not Path("data").exists()


def test_another_format_names_the_column() -> None:
    repository, train, test = FILES["musique"]
    folder = Path("hub") / repository
    folder.mkdir(parents=True)
    for name in (train, test):
        (folder / name).write_text('{"id": "x", "question": "Who?"}\n')
    with pytest.raises(CorpusError, match=r"train\.jsonl:1: no column paragraphs"):
        run(HubParams(dataset="musique", root="hub"))


def test_validation_questions_are_read_beside_as_many_training_questions_as_were_asked_for() -> None:
    repository, train, test = FILES["musique"]
    rows = [{**MUSIQUE, "id": f"2hop__{n}", "question": f"Where was founder {n} born?"} for n in range(9)]
    for pattern, own in ((train, rows[:8]), (test, rows[8:])):
        path = Path("hub") / repository / pattern
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in own))
    counts = run(HubParams(dataset="musique", root="hub", train_questions=4, validation_questions=2))
    assert (counts["train_questions"], counts["validation_questions"], counts["test_questions"]) == (4, 2, 1)
