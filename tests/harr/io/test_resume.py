"""Unfinished work of other parameters: it is kept, and a new run next to it prints what differs."""

from pathlib import Path

import pytest

from harr.io.files import finish, note_published, read_json
from harr.io.resume import open_work

LAST = "it is kept, this run starts from scratch\n"


@pytest.mark.fault(21)
def test_the_parameters_that_differ_are_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = {"params": {"rate": 0.1, "steps": 3, "only": "old"}, "seed": 0}
    open_work(tmp_path, old)
    new = {"params": {"rate": 0.2, "steps": 3}, "seed": 0}
    open_work(tmp_path, new)
    assert capsys.readouterr().out == "", "what was never begun is no unfinished work"
    open_work(tmp_path, old).mkdir()
    open_work(tmp_path, new).mkdir()
    said = capsys.readouterr().out
    assert said == (
        f"the unfinished work in {open_work(tmp_path, old)} is of other parameters "
        f'(params.rate: 0.1, now 0.2; params.only: "old", now null); {LAST}'
    )
    for run in (old, new):
        open_work(tmp_path, run)
    assert capsys.readouterr().out == "", "both are there: each goes on with its own"


def test_the_last_one_is_compared_and_what_was_published_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for steps in (1, 2, 1):
        open_work(tmp_path, {"steps": steps}).mkdir(exist_ok=True)
    capsys.readouterr()
    open_work(tmp_path, {"steps": 3})
    assert "(steps: 1, now 3)" in capsys.readouterr().out
    note_published(open_work(tmp_path, {"steps": 1}))
    open_work(tmp_path, {"steps": 3})
    assert "(steps: 2, now 3)" in capsys.readouterr().out
    finish(tmp_path)
    left = [open_work(tmp_path, {"steps": steps}) for steps in (2, 3)]
    assert sorted(tmp_path.iterdir()) == sorted([left[0], *(folder.with_suffix(".json") for folder in left)])


def test_no_password_is_noted_or_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for password in ("hidden", "secret"):
        folder = open_work(tmp_path, {"places": [{"uri": f"http://me:{password}@db:19530"}]})
        folder.mkdir()
        assert read_json(folder.with_suffix(".json")) == {"places": [{"uri": "http://db:19530"}]}
    assert f"(the password of an address); {LAST}" in capsys.readouterr().out


def test_a_damaged_note_and_many_differences_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = open_work(tmp_path, {"steps": 3})
    folder.mkdir()
    folder.with_suffix(".json").write_text("{")
    open_work(tmp_path, {letter: letter * 99 for letter in "abcdefg"})
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and f'a: null, now "{"a" * 55} ...; b: ' in said and f"; 2 more); {LAST}" in said
