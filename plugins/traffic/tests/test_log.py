"""Logs of traffic: what is kept, for how long, and that nothing damaged or foreign is half-read."""

from dataclasses import replace
from pathlib import Path

import pytest
from harr_traffic.log import Feedback, LoggedSearch, Recording, TrafficLog, read_log

from harr.errors import DamagedFile, ParamsError

SEARCH = LoggedSearch(
    "s1", 1.5, "3", "sep with history", "Who?", "Who is she?", "Who? [SEP] she", ("p1", "p2"), ("p1", "p2", "p3"), -0.5
)


def test_what_was_kept_is_read(tmp_path: Path) -> None:
    log = TrafficLog(Recording(folder=tmp_path / "log"))
    best = replace(SEARCH, id="s2", pool=(), logprob=None)
    half = replace(SEARCH, id="s4", at=1.6, kept=1)
    for one in (SEARCH, best, half):
        log.add_search(one)
    for score in (0.0, 1.0):
        log.outcome(Feedback("s1", 2.0, score, ("p2",)))
    log.add_search(replace(SEARCH, id="s3", chosen=(), question=""))
    log.add_search(bm25 := replace(SEARCH, id="s5", at=1.7, reads=""))
    searches, outcomes = read_log(tmp_path / "log")
    assert searches == [SEARCH, best, replace(SEARCH, id="s3", chosen=(), question=""), half, bm25]
    assert outcomes == {"s1": Feedback("s1", 2.0, 1.0, ("p2",))}, "the last one counts"
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "log").iterdir()} == {0o600}


def test_texts_may_stay_out_and_old_days_go(tmp_path: Path) -> None:
    old, foreign = tmp_path / "searches-20200101.jsonl", tmp_path / "notes.jsonl"
    old.write_text("{}\n")
    foreign.write_text("mine")
    TrafficLog(Recording(folder=tmp_path, days=7, texts=False)).add_search(SEARCH)
    assert not old.exists() and foreign.read_text() == "mine"
    assert read_log(tmp_path)[0] == [replace(SEARCH, question="", query="", state="")]


def test_a_line_that_a_kill_broke_off_goes_at_the_next_start(tmp_path: Path) -> None:
    TrafficLog(Recording(folder=tmp_path)).add_search(SEARCH)
    [path] = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    with pytest.raises(DamagedFile, match=r"searches-\d+\.jsonl:2: no JSON; remove the line, or the file"):
        read_log(tmp_path)
    TrafficLog(Recording(folder=tmp_path)).add_search(replace(SEARCH, id="s2"))
    assert [one.id for one in read_log(tmp_path)[0]] == ["s1", "s2"]


FOREIGN = [
    ('{"format":2,"id":"s"}', "no row of format 1"),
    ('{"question":"Who?"}', "no row of format 1"),
    ("[1]", "no row of format 1"),
    ('{"format":1,"id":"s"}', r"no row of a log \(at: Field required\)"),
    ('{"format":1,"id":"s","at":1,"version":"1","reads":"sep","who":"x"}', "unknown 'who'"),
    ('{"format":1,"id":"s","at":"noon","version":"1"}', r"no row of a log \(at: Input should be a valid number\)"),
    ('{"format":1,"id":"s","at":1,"version":"1","chosen":"p1"}', "chosen: Input should be a valid array"),
    ("", "no JSON"),
]


def test_foreign_rows_are_one_line(tmp_path: Path) -> None:
    for line, message in FOREIGN:
        (tmp_path / "searches-20300101.jsonl").write_text(line + "\n")
        with pytest.raises(DamagedFile, match=rf"searches-20300101\.jsonl:1: .*{message}"):
            read_log(tmp_path)


def test_a_log_reads_alike_in_any_order_and_never_twice(tmp_path: Path) -> None:
    log = TrafficLog(Recording(folder=tmp_path))
    for number in range(3):
        log.add_search(replace(SEARCH, id=f"s{number}", at=float(number)))
        log.outcome(Feedback("s0", float(number), number / 2))
    found = read_log(tmp_path)
    paths = sorted(tmp_path.iterdir())
    for path in paths:
        path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    assert read_log(tmp_path) == found and found[1]["s0"].score == 1.0
    copy = tmp_path / "searches-20990101.jsonl"
    copy.write_bytes(paths[1].read_bytes())
    with pytest.raises(DamagedFile, match=r"searches-20990101\.jsonl:1: search s2 is there twice; remove the copy"):
        read_log(tmp_path)
    copy.unlink()
    copy.mkdir()
    with pytest.raises(ParamsError, match=r"searches-20990101\.jsonl cannot be read \(Is a directory\)"):
        read_log(tmp_path)


def test_a_folder_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="holds no searches-"):
        read_log(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ParamsError, match="no log can be written there"):
        TrafficLog(Recording(folder=tmp_path / "file"))
