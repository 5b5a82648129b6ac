"""The filter: a reason for every question, a target, and resume after a kill."""

import json
from pathlib import Path

import pytest

from harr.corpus.store import read_questions
from harr.errors import CorpusError
from harr.filter import filter_questions
from harr.params import Filter
from harr.setup import Setup
from harr.types import Question


def silent(step: int, values: object) -> None:
    """A log nobody reads."""


def test_every_tried_question_has_a_reason(setup: Setup, tmp_path: Path) -> None:
    params = Filter(group_size=8, target=100, batch_size=7)
    counts = filter_questions(params, setup, tmp_path / "out", tmp_path / "work", silent, seed=0)
    rows = [json.loads(line) for line in (tmp_path / "out" / "statistics.jsonl").read_text().splitlines()]
    assert len(rows) == 20 == counts["tried"]
    kept = read_questions(tmp_path / "out" / "questions.jsonl")
    easy_first = sorted((row for row in rows if row["kept"]), key=lambda row: -row["reward_mean"])
    assert [q.id for q in kept] == [row["id"] for row in easy_first]
    for row in rows:
        assert row["kept"] == (row["reward_std"] > 0)
        expected = {0.0: "all wrong", 1.0: "all right"}.get(row["reward_mean"], "rollouts disagree")
        assert row["reason"] == expected
    assert not list((tmp_path / "work").iterdir())


def test_stops_at_the_target(setup: Setup, tmp_path: Path) -> None:
    params = Filter(group_size=8, target=3, batch_size=5)
    counts = filter_questions(params, setup, tmp_path / "out", tmp_path / "work", silent, seed=0)
    assert counts["kept"] == 3
    assert counts["tried"] < 20


def test_a_killed_filter_resumes_to_the_same_bytes(setup: Setup, tmp_path: Path) -> None:
    params = Filter(group_size=4, target=100, batch_size=4)

    def kill(step: int, values: object) -> None:
        if step == 2:
            raise KeyboardInterrupt

    filter_questions(params, setup, tmp_path / "whole", tmp_path / "a", silent, seed=5)
    with pytest.raises(KeyboardInterrupt):
        filter_questions(params, setup, tmp_path / "resumed", tmp_path / "b", kill, seed=5)
    assert not (tmp_path / "resumed").exists()
    filter_questions(params, setup, tmp_path / "resumed", tmp_path / "b", silent, seed=5)
    for name in ("questions.jsonl", "statistics.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "resumed" / name).read_bytes()


def test_nothing_kept_is_one_clear_line(setup: Setup, tmp_path: Path) -> None:
    hopeless = [Question("q", "What is Ashford like?", (), ("Selby-winter",))]
    game = Setup(hopeless, setup.pipeline, setup.retriever, None, setup.reward, "hopeless")
    with pytest.raises(CorpusError, match="filter kept none of 1 questions"):
        filter_questions(Filter(), game, tmp_path / "out", tmp_path / "work", silent, seed=0)
    assert not (tmp_path / "out").exists()


def test_all_are_kept_unplayed(setup: Setup, tmp_path: Path) -> None:
    params = Filter(keep="all", target=6, batch_size=4)
    counts = filter_questions(params, setup, tmp_path / "out", tmp_path / "work", silent, seed=0)
    assert (counts["kept"], counts["tried"], counts["kept_share"]) == (6, 8, 1.0)
