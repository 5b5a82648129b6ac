"""The hub's own file formats, read from small local copies; nothing is downloaded."""

from pathlib import Path
from typing import Any

import pytest
from downloading import gold_titles, passages, questions, run, write_rows
from harr_open_domain.hub import FILES, WIKI18

from harr.errors import CorpusError
from harr.params.download import FunctionDatasetParams

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


def put(repository: str, file: str, *rows: dict[str, Any]) -> None:
    """Write rows as the file, or as one that has the pattern, of a repository."""
    write_rows(Path("hub") / repository / file.replace("*", "-00000-of-00001"), rows)


def load(dataset: str, **more: Any) -> dict[str, float]:
    """Run stage download over the files of folder hub."""
    function, own = f"harr_open_domain:{dataset}", {"validation_questions": more.pop("validation_questions", 0)}
    return run(FunctionDatasetParams(dataset="function", function=function, settings={"root": "hub", **more}, **own))


@pytest.mark.parametrize(("dataset", "name"), [("HOTPOTQA", "hotpotqa"), ("TWO_WIKI", "2wikimultihopqa")])
def test_hotpot_parquet(dataset: str, name: str) -> None:
    repository, train, test = FILES[name]
    put(repository, train, {**HOTPOT, "id": "h0", "question": "Who founded Acme?"})
    put(repository, test, HOTPOT)
    counts = load(dataset)
    assert (counts["passages"], counts["train_questions"], counts["test_questions"]) == (3, 1, 1)
    assert gold_titles(*questions("test")) == ["Acme", "Ada Brown"]


def test_questions_of_some_levels_are_learnt_from_and_the_limit_counts_those() -> None:
    repository, train, test = FILES["hotpotqa"]
    levels = ["easy", "hard", "medium", "hard", "hard"]
    rows = [{**HOTPOT, "id": f"h{n}", "question": f"Who is {n}?", "level": level} for n, level in enumerate(levels)]
    put(repository, train, *rows)
    put(repository, test, {**HOTPOT, "level": "hard"})
    drawn = set()
    for seed in range(8):
        load("HOTPOTQA", train_level=("hard",), train_questions=2, seed=seed)
        assert [(question.level, question.kind) for question in questions("train")] == [("hard", "bridge")] * 2
        drawn.add(tuple(question.id for question in questions("train")))
    assert drawn == {("h1", "h3"), ("h1", "h4"), ("h3", "h4")}, "drawn by the seed, in their order"


def test_musique_keeps_hop_order_and_aliases() -> None:
    repository, train, test = FILES["musique"]
    put(repository, train, {**MUSIQUE, "id": "2hop__0", "question": "Who?"})
    put(repository, test, MUSIQUE)
    load("MUSIQUE")
    (question,) = questions("test")
    assert gold_titles(question) == ["Acme", "Ada Brown"]
    assert question.answers == ("Ashford", "Ashford, Kent") and question.kind == "2hop"


def test_a_limit_takes_as_large_a_share_of_every_type_as_of_all() -> None:
    repository, train, test = FILES["musique"]
    hops = [2] * 12 + [4] * 6  # a file's first rows are all of one type
    rows = [{**MUSIQUE, "id": f"{count}hop__{n}", "question": f"Who is {n}?"} for n, count in enumerate(hops)]
    put(repository, train, *rows)
    put(repository, test, *({**row, "question": f"Test {row['id']}"} for row in rows))
    load("MUSIQUE", train_questions=6, test_questions=3)
    for split, count in (("train", 2), ("test", 1)):
        kinds = [question.kind for question in questions(split)]
        assert (kinds.count("2hop"), kinds.count("4hop")) == (2 * count, count)
    counts = load("MUSIQUE", train_questions=6, test_questions=3, validation_questions=3)
    assert (counts["train_questions"], counts["validation_questions"], counts["test_questions"]) == (6, 3, 3)


def test_all_four_sets_stand_side_by_side_over_wiki18() -> None:
    """NQ and TriviaQA number their questions alike, so ids begin with the name of the set."""
    given = {"context": {"title": ["A"], "sentences": [["One."]]}, "supporting_facts": {"title": ["A"]}}
    for name in ("hotpotqa", "2wikimultihopqa"):
        for split, file in zip(("train", "test"), FILES[name][1:], strict=True):
            row = {"id": f"{name}-{split}", "question": f"Who is in {name} {split}?", "answer": split, "type": "bridge"}
            put(FILES[name][0], file, row | given)
    for name in ("nq", "triviaqa"):
        for split, file in zip(("train", "dev"), FILES[name][1:], strict=True):
            row = {"id": f"{split}_0", "question": f"Who, {name} {split}?", "golden_answers": [split]}
            put(FILES[name][0], file, row)
    put(*WIKI18, *({"id": str(i), "contents": f'"Title {i}"\nText {i} of many'} for i in range(5)))
    counts = load("ALL")
    assert counts["train_questions"] == counts["test_questions"] == 4 and counts["passages"] == 5
    assert passages()[3].content == "Title 3: Text 3 of many"
    assert [question.id for question in questions("train")][-2:] == ["nq-train_0", "triviaqa-train_0"]
    assert not any(question.gold_ids or question.candidate_ids for question in questions("train"))
    assert load("NQ")["train_questions"] == 1 and [one.id for one in questions("train")] == ["train_0"]


@pytest.mark.parametrize(
    ("dataset", "root", "line"),
    [
        ("HOTPOTQA", "hub", r"no distractor/train\*\.parquet in hub"),
        ("MUSIQUE", "", "cannot get musique_ans_v1.0_train.jsonl .* put the files under root"),
        ("MUSIQUE", "hub", r"train\.jsonl:1: no column paragraphs"),
    ],
)
def test_what_is_not_there_is_one_line(dataset: str, root: str, line: str) -> None:
    for file in FILES["musique"][1:]:
        put(FILES["musique"][0], file, {"id": "x", "question": "Who?"})
    with pytest.raises(CorpusError, match=line) as error:
        load(dataset, root=root)
    assert "\n" not in str(error.value)
    assert not Path("data").exists()
