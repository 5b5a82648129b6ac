"""The filter: a reason for every question, a target, and resuming after a kill."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from digests import digests
from letters import OnePassage, save_letters, spell

from harr.corpus.passages import read_questions
from harr.errors import CorpusError
from harr.filter import filter_questions
from harr.io.files import finish
from harr.params.filter import FilterParams
from harr.rag.generation.sampler import Samplers
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.types import Question


def silent(step: int, values: object) -> None:
    """Log nowhere."""


def kill_after(steps: int) -> Callable[[int, object], None]:
    """Return a log that ends the stage."""

    def kill(step: int, values: object) -> None:
        if step == steps:
            raise KeyboardInterrupt

    return kill


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the notes on every question that was tried."""
    return {row["id"]: row for row in map(json.loads, (folder / "statistics.jsonl").read_text().splitlines())}


def test_every_tried_question_has_a_reason_until_the_target_is_reached(setup: Setup, tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    counts = filter_questions(FilterParams(group_size=8, target=100, batch_size=7), setup, out, work, silent, seed=0)
    rows = list(rows_of(out).values())
    assert len(rows) == 20 == counts["tried"]
    easy_first = sorted((row for row in rows if row["kept"]), key=lambda row: -row["reward_mean"])
    assert [q.id for q in read_questions(out / "questions.jsonl")] == [row["id"] for row in easy_first]
    for row in rows:
        assert row["kept"] == (row["reward_std"] > 0)
        expected = {0.0: "all wrong", 1.0: "all right"}.get(row["reward_mean"], "rollouts disagree")
        assert row["reason"] == expected
    finish(work)
    assert not list(work.iterdir())
    few = filter_questions(FilterParams(group_size=8, target=3, batch_size=5), setup, out, work, silent, seed=0)
    assert few["kept"] == 3 and few["tried"] < 20
    unplayed = FilterParams(keep="all", target=6, batch_size=4)
    every = filter_questions(unplayed, setup, out, work, silent, seed=0)
    assert (every["kept"], every["tried"], every["kept_share"]) == (6, 8, 1.0)


def test_a_killed_filter_resumes_to_the_same_bytes(setup: Setup, tmp_path: Path) -> None:
    params = FilterParams(group_size=4, target=100, batch_size=4)
    filter_questions(params, setup, tmp_path / "whole", tmp_path / "a", silent, seed=5)
    with pytest.raises(KeyboardInterrupt):
        filter_questions(params, setup, tmp_path / "resumed", tmp_path / "b", kill_after(2), seed=5)
    assert not (tmp_path / "resumed").exists()
    filter_questions(params, setup, tmp_path / "resumed", tmp_path / "b", silent, seed=5)
    assert digests(tmp_path / "whole") == digests(tmp_path / "resumed")


def test_nothing_kept_is_one_clear_line(setup: Setup, tmp_path: Path) -> None:
    hopeless = [Question("q", "What is Ashford like?", (), ("Selby-winter",))]
    game = Setup(hopeless, setup.pipeline, setup.retriever, None, setup.reward, "hopeless")
    with pytest.raises(CorpusError, match="filter kept none of 1 questions"):
        filter_questions(FilterParams(), game, tmp_path / "out", tmp_path / "work", silent, seed=0)
    assert not (tmp_path / "out").exists()


LETTERS = [Question(f"q{number}", text) for number, text in enumerate(["q", "w", "e", "r", "b", "d"])]


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_letters(tmp_path_factory.mktemp("letters"), spread=0.5))


def writing(letters: str, questions: Sequence[Question] = LETTERS, terms: str = "letters:share_of_a") -> Setup:
    """Return a game in which the language model learns, with a sampler of that model."""
    sampler = Samplers(letters, max_tokens=8, batch_size=7, seed=0, grows=True)
    return Setup(
        questions, spell, OnePassage(), None, Reward({terms: 1.0}), "letters", language_model=letters, sample=sampler
    )


def test_the_model_that_learns_is_sampled(letters: str, tmp_path: Path) -> None:
    """Its rollouts of a question differ, and do not depend on the rest of the batch."""
    found = []
    for size in (1, 64):
        params, out = FilterParams(group_size=4, target=100, batch_size=size), tmp_path / f"out-{size}"
        filter_questions(params, writing(letters), out, tmp_path / "work", silent, seed=3)
        found.append(rows_of(out))
    assert found[0] == found[1]
    assert "rollouts disagree" in {row["reason"] for row in found[0].values()}


def test_a_question_without_a_reward_is_dropped_and_counted(letters: str, tmp_path: Path) -> None:
    params, game = FilterParams(group_size=8, batch_size=8), writing(letters, terms="letters:share_of_a_unless_q")
    counts = filter_questions(params, game, tmp_path / "out", tmp_path / "work", silent, seed=0)
    assert counts["dropped_no_reward_applies"] == 1 and counts["tried"] == 6
    assert rows_of(tmp_path / "out")["q0"] == {"id": "q0", "kept": False, "reason": "no reward applies"}
