"""What a log says of a candidate in the shadow: how often it differs, what was clicked, what it would have earned."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harr_traffic.judge import _not_learnt
from harr_traffic.log import Feedback, LoggedSearch
from harr_traffic.preference import compare
from harr_traffic.shadows import Shadowed

from harr.corpus.passages import write_questions
from harr.errors import ParamsError
from harr.types import Question
from tasks.paths import QUESTIONS

N = 400
BEST = LoggedSearch("", 0.0, "3", "sep", "q", "q", "q", ("a", "b"))


def served(count: int = N) -> tuple[list[LoggedSearch], dict[str, Feedback], list[Shadowed]]:
    """Best first; a candidate that turns the two in every fourth search, and finds another one in every eighth."""
    searches = [replace(BEST, id=f"s{n}", question=f"q{n // 2}", at=float(n)) for n in range(count)]
    shadows = [
        Shadowed(f"s{n}", n + 0.5, "4", ("b", "a") if n % 4 == 0 else ("a", "c") if n % 8 == 1 else ("a", "b"))
        for n in range(count)
    ]
    # clicks: b in every second search
    outcomes = {f"s{n}": Feedback(f"s{n}", n + 1.0, float(n % 2 == 0), ("b",) * (n % 2 == 0)) for n in range(count)}
    return searches, outcomes, shadows


def test_how_often_and_by_how_much_it_differs() -> None:
    [found] = compare(*served())
    assert (found.version, found.served, found.searches, found.asked) == ("4", ("3",), N, N)
    assert found.first.span and found.first.span[0] == 0.25 and found.first.rows == N
    assert found.others.span and found.others.span[0] == 0.125 / 2
    assert found.first.span[1] < 0.25 < found.first.span[2]
    assert found.differs.span and (found.differs.rows, found.differs.span[0]) == (N // 4, 1.0)
    assert found.same.span and found.same.span[0] == pytest.approx(1 / 3)
    assert (found.higher, found.lower, found.preferred.rows) == (N // 4, 0, N // 2)
    assert found.preferred.span and found.preferred.span[0] == 0.5
    assert found.found == {} and "no search was both explored" in found.refused
    assert found.lines()[1].startswith("first passage differs   25.0 [") and "+50.0 [" in found.lines()[5]


def test_questions_that_the_project_trains_on_are_left_out(tmp_path: Path) -> None:
    write_questions([Question("q", "Who founded Acme?")], tmp_path / QUESTIONS / "train.jsonl")
    asked = ["Who founded Acme?", "who founded  acme", "Who sold Acme?"]
    searches = [replace(BEST, id=text, question=text) for text in asked]
    assert [one.question for one in _not_learnt(searches, tmp_path)] == asked[2:]
    with pytest.raises(ParamsError, match=r"--index .*away is no folder"):
        _not_learnt(searches, tmp_path / "away")


def test_what_it_would_have_earned_is_known_from_what_was_drawn() -> None:
    """Two passages drawn evenly, of which the first earns 1; a candidate that takes it four times of five earns .8."""
    rng = np.random.default_rng(0)
    searches, outcomes, shadows = [], {}, []
    for n in range(N):
        pool = ("a", "b") if rng.random() < 0.5 else ("b", "a")
        name, right = f"s{n}", pool[0] == "a"
        searches.append(replace(BEST, id=name, question=name, chosen=pool[:1], pool=pool, logprob=float(np.log(0.5))))
        shadows.append(Shadowed(name, 0.0, "4", ("a",), float(np.log(0.8 if right else 0.2))))
        outcomes[name] = Feedback(name, 0.0, float(right))
    [found] = compare(searches, outcomes, shadows)
    assert set(found.found) == {"ips", "snips"} and found.explored == N and found.refused == ""
    for one in found.found.values():
        assert one.low < 0.8 < one.high and one.gain_low > 0.2
    assert found.first.rows == 0, "what was drawn says nothing of the best"
    assert any(line.startswith("earned (snips)") for line in found.lines())
