"""bAbI: what the sentences say, the official files, and stories of our own that the solver agrees with."""

import gzip
import json
from pathlib import Path

import pytest
from babi_oracle import gold_of
from harr_lengths.babi import Story, make_stories, read_stories
from harr_lengths.babi_rules import TASKS, event_of

from harr.errors import CorpusError

TEXT = """1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Mary went back to the office.
5 Where is Mary? \toffice\t4
1 Daniel journeyed to the garden.
2 Where is Daniel?\tgarden\t1
"""
ROW = {
    "task": "qa1_single",
    "question": "Where is Mary?",
    "answers": ["garden"],
    "facts": ["Mary went to the garden."],
    "supporting": [0],
}


@pytest.mark.parametrize("task", TASKS)
def test_our_stories_are_facts_and_the_solver_agrees(task: int) -> None:
    stories = list(make_stories(task, 60, seed=1))
    assert stories != list(make_stories(task, 60, seed=2))
    assert stories[:20] == list(make_stories(task, 20, seed=1))
    for story in stories:
        assert all(event_of(fact) for fact in story.facts)
        assert gold_of(task, story.question, story.facts) == (story.answers[0], story.gold)
        assert len(story.gold) == {2: 2, 3: 3}.get(task, 1)
        assert len(story.facts) % 2 == 0


def test_official_text_and_json_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "qa1.txt"
    path.write_text(TEXT)
    first, second, third = read_stories(path, 1)
    assert first == Story(
        "Where is Mary?", ("bathroom",), ("Mary moved to the bathroom.", "John went to the hallway."), (0,)
    )
    assert second.facts[second.gold[0]] == "Mary went back to the office." and len(second.facts) == 3
    assert third == Story("Where is Daniel?", ("garden",), ("Daniel journeyed to the garden.",), (0,))
    packed = tmp_path / "qa1.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(ROW).encode()))
    assert list(read_stories(packed, 1)) == [Story("Where is Mary?", ("garden",), ("Mary went to the garden.",), (0,))]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("Mary moved.", r"qa\.txt:8: 'Mary moved\.' is neither a fact .* nor a question"),
        ("3 Where is Mary?\toffice", r"qa\.txt:8: .* is neither a fact"),
        ("3 Where is Mary?\toffice\tone", r"qa\.txt:8: .* is neither a fact"),
        ("9 Mary went to the office.", r"qa\.txt:8: line number 9 in its story; expected 3, or 1 to begin"),
        ("3 Where is Mary?\toffice\t7", r"qa\.txt:8: supporting fact 7 is outside the story; expected one of \[1\]"),
        ("3 Where is Mary?\toffice\t2", r"qa\.txt:8: supporting fact 2 is outside the story"),
        ({"supporting": [1]}, r"qa\.jsonl:1: supporting fact 1 is outside the story; expected one of \[0\]"),
        ({"supporting": [-1]}, "supporting fact -1 is outside"),
        ({"supporting": []}, r"supporting is '\[\]'; expected a list of fact positions"),
        ({"supporting": [True]}, r"supporting is '\[True\]'"),
        ({"facts": []}, "a story with 0 facts and 1 answers; expected both"),
        ({"answers": []}, "a story with 1 facts and 0 answers"),
        ({"facts": "Mary"}, "facts is 'Mary'; expected a list of strings"),
        ({"question": ""}, "story without question"),
        ({"task": "qa7_counting"}, "a story of 'qa7_counting'; expected qa1"),
    ],
)
def test_a_wrong_line_or_row_is_named(tmp_path: Path, wrong: str | dict[str, object], message: str) -> None:
    path = tmp_path / ("qa.txt" if isinstance(wrong, str) else "qa.jsonl")
    path.write_text(TEXT + wrong + "\n" if isinstance(wrong, str) else json.dumps({**ROW, **wrong}))
    with pytest.raises(CorpusError, match=message) as error:
        list(read_stories(path, 1))
    assert "\n" not in str(error.value)


def test_an_unknown_task_and_a_missing_file_are_named(tmp_path: Path) -> None:
    for unknown in (lambda: make_stories(6, 1, 0), lambda: read_stories(tmp_path, 6)):
        with pytest.raises(CorpusError, match="task 6 is unknown; expected a bAbI task from 1 to 5"):
            list(unknown())
    with pytest.raises(CorpusError, match=r"no\.txt is missing"):
        list(read_stories(tmp_path / "no.txt", 1))
