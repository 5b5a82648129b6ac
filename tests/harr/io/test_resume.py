"""Unfinished work of other parameters: it is kept, and whoever begins anew beside it is told what differs."""

from dataclasses import replace
from pathlib import Path

import pytest

from harr.filter import filter_questions
from harr.io.files import finish, note_published, read_json
from harr.io.resume import unfinished
from harr.params.filter import FilterParams
from harr.rag.setup import Setup

LAST = "it is kept, this run begins anew\n"


def silent(step: int, values: object) -> None:
    """A log nobody reads."""


def killed(step: int, values: object) -> None:
    if step == 1:
        raise KeyboardInterrupt


def test_the_parameters_that_differ_are_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = {"params": {"rate": 0.1, "steps": 3, "only": "old"}, "seed": 0}
    unfinished(tmp_path, old)
    new = {"params": {"rate": 0.2, "steps": 3}, "seed": 0}
    unfinished(tmp_path, new)
    assert capsys.readouterr().out == "", "what was never begun is no unfinished work"
    unfinished(tmp_path, old).mkdir()
    unfinished(tmp_path, new).mkdir()
    said = capsys.readouterr().out
    assert said == (
        f"the unfinished work in {unfinished(tmp_path, old)} is of other parameters "
        f'(params.rate: 0.1, now 0.2; params.only: "old", now null); {LAST}'
    )
    for run in (old, new):
        unfinished(tmp_path, run)
    assert capsys.readouterr().out == "", "both are there: each goes on with its own"


def test_the_last_one_is_compared_and_what_was_published_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for steps in (1, 2, 1):
        unfinished(tmp_path, {"steps": steps}).mkdir(exist_ok=True)
    capsys.readouterr()
    unfinished(tmp_path, {"steps": 3})
    assert "(steps: 1, now 3)" in capsys.readouterr().out
    note_published(unfinished(tmp_path, {"steps": 1}))
    unfinished(tmp_path, {"steps": 3})
    assert "(steps: 2, now 3)" in capsys.readouterr().out
    finish(tmp_path)
    left = [unfinished(tmp_path, {"steps": steps}) for steps in (2, 3)]
    assert sorted(tmp_path.iterdir()) == sorted([left[0], *(folder.with_suffix(".json") for folder in left)])


def test_no_password_is_noted_or_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for password in ("hidden", "secret"):
        folder = unfinished(tmp_path, {"places": [{"uri": f"http://me:{password}@db:19530"}]})
        folder.mkdir()
        assert read_json(folder.with_suffix(".json")) == {"places": [{"uri": "http://db:19530"}]}
    assert f"(the password of an address); {LAST}" in capsys.readouterr().out


def test_a_damaged_note_and_many_differences_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = unfinished(tmp_path, {"steps": 3})
    folder.mkdir()
    folder.with_suffix(".json").write_text("{")
    unfinished(tmp_path, {letter: letter * 99 for letter in "abcdefg"})
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and f'a: null, now "{"a" * 55} ...; b: ' in said and f"; 2 more); {LAST}" in said


def test_a_filter_with_other_parameters_is_told(
    setup: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What ``setup`` is a hash of is told by name."""
    params, work = FilterParams(group_size=4, target=100, batch_size=4), tmp_path / "work"
    game = replace(setup, identity="a", facts={"game": {"retriever": {"k": 3}}})
    with pytest.raises(KeyboardInterrupt):
        filter_questions(params, game, tmp_path / "out", work, killed, seed=5)
    (folder,) = [path for path in work.iterdir() if path.is_dir()]
    capsys.readouterr()
    other = replace(setup, identity="b", facts={"game": {"retriever": {"k": 5}}})
    more = params.model_copy(update={"group_size": 8})
    filter_questions(more, other, tmp_path / "out", work, silent, seed=5)
    assert (
        f"the unfinished work in {folder} is of other parameters "
        f"(params.group_size: 4, now 8; setup.game.retriever.k: 3, now 5); {LAST}" in capsys.readouterr().out
    )
    finish(work)
    assert sorted(work.iterdir()) == [folder, folder.with_suffix(".json")], "the old work is kept"
