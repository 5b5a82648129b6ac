"""Samples are drawn by a seed, with every setting and kind in its share."""

from collections import Counter

from harr.corpus.sample import draw_questions, draw_rows
from harr.types import Question


def asked() -> list[Question]:
    """Return questions by setting, as in recipes over several data sets: 60 and 30, of two kinds each."""
    settings = ["hotpotqa"] * 60 + ["musique"] * 30
    return [
        Question(f"{n}", "Who?", kind=("bridge", "comparison")[n % 3 == 0], setting=name)
        for n, name in enumerate(settings)
    ]


def test_a_sample_has_every_setting_and_kind_in_its_share() -> None:
    """The first 30 of the file would come from one data set."""
    drawn = draw_questions(asked(), 30, seed=3)
    found = Counter((question.setting, question.kind) for question in drawn)
    assert sum(found.values()) == 30 and [question.id for question in drawn] == sorted(
        (question.id for question in drawn), key=int
    )
    exact = {("hotpotqa", "bridge"): 40 / 3, ("hotpotqa", "comparison"): 20 / 3, ("musique", "bridge"): 20 / 3}
    assert all(abs(found[stratum] - share) <= 1 for stratum, share in exact.items())


def test_the_seed_draws() -> None:
    one, same, other = (draw_questions(asked(), 30, seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    assert draw_questions(asked(), 0, seed=1) == asked() and draw_questions(asked(), 500, seed=1) == asked()
    counts = Counter(question.id for seed in range(300) for question in draw_questions(asked(), 30, seed))
    assert len(counts) == 90 and 60 < min(counts.values()) <= max(counts.values()) < 145, "each about as often"


def test_rows_of_a_stream_are_drawn_alike() -> None:
    counts = Counter(row for seed in range(400) for row in draw_rows(iter(range(20)), 5, seed))
    assert all(60 < counts[row] < 145 for row in range(20)), "each in about 100 of 400"
    assert list(draw_rows(iter(range(20)), 5, 7)) == sorted(draw_rows(iter(range(20)), 5, 7))
    assert list(draw_rows(iter("abc"), 0, 0)) == list("abc") == list(draw_rows(iter("abc"), 9, 0))


def test_rows_of_every_stratum_are_drawn_by_its_share() -> None:
    rows = ["rare"] * 50 + ["common"] * 350  # the first 40 are all rare
    drawn = Counter(draw_rows(iter(rows), 40, 0, lambda row: row))
    assert drawn == {"rare": 5, "common": 35}
    kinds = [question.kind for question in asked()]
    of_questions = Counter(question.kind for question in draw_questions(asked(), 30, seed=3))
    assert abs(Counter(draw_rows(iter(kinds), 30, 3, lambda kind: kind))["bridge"] - of_questions["bridge"]) <= 1
