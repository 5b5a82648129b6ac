"""The table of docs/performance.md shows the last measurement; `python -m benchmarks.peers --page` writes it."""

from benchmarks.peers.__main__ import END, KEPT, PAGE, START, page, with_others
from benchmarks.peers.turns import row
from harr.io.files import read_json


def test_the_page_shows_what_was_measured() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = text[text.index(START) + len(START) : text.index(END)].strip()
    assert shown == page(read_json(KEPT)["rows"]), "run `python -m benchmarks.peers --page`"


def test_a_ratio_is_of_runs_that_were_neighbours() -> None:
    runs = {"harr": [1.0, 4.0, 2.0], "peer": [2.0, 8.0, 2.0]}
    found = row("work", runs, ours="harr", peer="peer", unit="texts/s", count=8.0, limit=16.0)
    assert found["ratio"] == [2.0, 1.0, 2.0]
    assert (found["speed"], found["peer_speed"], found["share"]) == (4, 4, 0.25)


def test_a_part_that_is_measured_again_replaces_its_rows_alone() -> None:
    kept = [{"what": "words", "peer": "bm25s", "speed": 1}, {"what": "vectors", "peer": "faiss", "speed": 2}]
    anew = {"what": "words", "peer": "bm25s", "speed": 3}
    assert with_others(kept, [anew]) == [kept[1], anew]
