"""Logs of traffic: what is kept, for how long, and that nothing damaged or foreign is half-read."""

from dataclasses import replace
from pathlib import Path

import pytest

from harr.errors import DamagedFile, ParamsError
from harr.traffic.log import Feedback, LoggedSearch, Recording, TrafficLog, read_log

SEARCH = LoggedSearch(
    "s1", 1.5, "3", "sep with history", "Who?", "Who is she?", "Who? [SEP] she", ("p1", "p2"), ("p1", "p2", "p3"), -0.5
)


def test_what_was_kept_is_read(tmp_path: Path) -> None:
    log = TrafficLog(Recording(tmp_path / "log"))
    best = replace(SEARCH, id="s2", pool=(), logprob=None)
    for one in (SEARCH, best):
        log.searched(one)
    for score in (0.0, 1.0):
        log.outcome(Feedback("s1", 2.0, score, ("p2",)))
    log.searched(replace(SEARCH, id="s3", chosen=(), question=""))
    searches, outcomes = read_log(tmp_path / "log")
    assert searches == [SEARCH, best, replace(SEARCH, id="s3", chosen=(), question="")]
    assert outcomes == {"s1": Feedback("s1", 2.0, 1.0, ("p2",))}, "the last one counts"
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "log").iterdir()} == {0o600}


def test_texts_may_stay_out_and_old_days_go(tmp_path: Path) -> None:
    old, foreign = tmp_path / "searches-20200101.jsonl", tmp_path / "notes.jsonl"
    old.write_text("{}\n")
    foreign.write_text("mine")
    TrafficLog(Recording(tmp_path, days=7, texts=False)).searched(SEARCH)
    assert not old.exists() and foreign.read_text() == "mine"
    assert read_log(tmp_path)[0] == [replace(SEARCH, question="", query="", state="")]


def test_a_line_that_a_kill_broke_off_goes_at_the_next_start(tmp_path: Path) -> None:
    TrafficLog(Recording(tmp_path)).searched(SEARCH)
    [path] = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    with pytest.raises(DamagedFile, match=r"searches-\d+\.jsonl:2: no JSON; remove the line, or the file"):
        read_log(tmp_path)
    TrafficLog(Recording(tmp_path)).searched(SEARCH)
    assert len(read_log(tmp_path)[0]) == 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"format":2,"id":"s"}', "no row of format 1"),
        ('{"question":"Who?"}', "no row of format 1"),
        ("[1]", "no row of format 1"),
        ('{"format":1,"id":"s"}', "no row of a log .*missing"),
        ('{"format":1,"id":"s","at":1,"version":"1","reads":"sep","logprob":"-1"}', "logprob is '-1'"),
        ('{"format":1,"id":"s","at":1,"version":"1","reads":"sep","logprob":NaN}', "logprob is 'nan'"),
        ('{"format":1,"id":"s","at":1,"version":"1","reads":"sep","who":"x"}', "who is 'x'"),
        ('{"format":1,"id":"s","at":1,"version":"1","reads":"sep","pool":[1]}', r"pool is '\[1\]'"),
    ],
)
def test_foreign_rows_are_one_line(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "searches-20300101.jsonl").write_text(line + "\n")
    with pytest.raises(DamagedFile, match=rf"searches-20300101\.jsonl:1: .*{told}"):
        read_log(tmp_path)


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="holds no searches-"):
        read_log(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ParamsError, match="cannot be written"):
        TrafficLog(Recording(tmp_path / "file"))
