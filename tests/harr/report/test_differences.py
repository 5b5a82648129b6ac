"""What changed since the champion: parameters that differ, and gains on the questions that both have."""

from typing import Any

from harr.report.differences import Champion, changes

DRAWN = {"resamples": 100, "seed": 0}


def rows(recall: float, count: int = 20, words: str = "Who?") -> list[dict[str, Any]]:
    return [{"id": f"q{n}", "question": words, "gold_answers": ["Ada"], "recall": recall} for n in range(count)]


def test_questions_are_paired_where_words_and_answers_are_the_same() -> None:
    changed = rows(0.25, 12) + rows(0.0, 20, "Another?")[12:]
    found = changes(Champion("m 1", {}, changed), {}, rows(0.75), **DRAWN)
    (gain,) = found["gains"]
    assert (found["questions"], found["of"]) == (12, 20)
    said = {"metric": "recall", "before": "25.0 %", "after": "75.0 %", "gain": "+50.0 [+50.0, +50.0]"}
    assert gain == said | {"sign": "up", "n": 12}
    assert changes(Champion("m 1", {}, rows(0.5, words="Another?")), {}, rows(0.5), **DRAWN)["gains"] == []
