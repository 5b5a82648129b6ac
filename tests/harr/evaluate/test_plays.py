"""The question table's data: all questions, each passage once, within the allowed bytes."""

from typing import Any

from harr.evaluate.plays import question_table
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step

ARMS = ("frozen", "history", "trained")


def played(count: int, text: str = "Words of a passage. " * 60) -> dict[str, list[Episode]]:
    """Make questions of two searches that share passages; the arms differ only in their answers."""
    games: dict[str, list[Episode]] = {}
    for arm in ARMS:
        games[arm] = []
        for number in range(count):
            question = Question(f"q{number}", f"Who is {number}?", ("Ada",), (f"p{number % 50}", "never-found"))
            shown = [Passage(f"p{(number + n) % 50}", text, f"Title {n}") for n in range(3)]
            steps = tuple(Step(Search(question, f"who {hop}"), Retrieval(tuple(shown))) for hop in range(2))
            hops = (Hop("who 0", "Ada", "FOUND"),)
            games[arm].append(Episode(question, steps, Outcome("Ada" if arm == "trained" else None, hops)))
    return games


def table(games: dict[str, list[Episode]], **changes: Any) -> dict[str, Any]:
    rows = {arm: [{"id": one.question.id, "recall": 0.5} for one in own] for arm, own in games.items()}
    values: dict[str, Any] = {"metric": "recall", "words": "recall", "share": True, "pair": ("frozen", "trained")}
    return question_table(rows, games, **values | changes)


def test_every_question_has_the_searches_of_every_arm_and_passages_stand_once() -> None:
    data = table(played(60))
    assert [one["id"] for one in data["questions"]] == [f"q{n}" for n in range(60)]
    assert sorted(pid for pid, _, _ in data["passages"]) == sorted(f"p{n}" for n in range(50))
    answer, hops = data["questions"][7]["plays"][2]
    assert data["texts"][answer] == "Ada" and len(hops) == 2
    assert [data["texts"][hops[0][0]], data["texts"][hops[0][1]], hops[0][2]] == ["who 0", "Ada", "FOUND"]
    assert hops[1][1:3] == [-1, ""] and [data["passages"][n][0] for n in hops[0][3]] == ["p7", "p8", "p9"]
    assert data["questions"][7]["plays"][0][0] == -1 and data["questions"][7]["ids"] == ["p7", "never-found"]
    assert data["length"] == 600 and data["opened"] == 60 and data["traced"] == list(ARMS)
