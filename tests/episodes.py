"""Played questions made by hand."""

from collections.abc import Sequence

from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step


def played(
    name: str,
    answer: str | None,
    *steps: str,
    gold: str = "ab",
    answers: tuple[str, ...] = ("Ada",),
    malformed: int = 0,
) -> Episode:
    """Make an episode: a letter is a passage, a word one search's passages; hops are answered with their numbers."""
    question = Question(name, f"Who is {name}?", answers, tuple(gold))
    searched = tuple(
        Step(Search(question, f"{name}.{number}"), Retrieval(tuple(Passage(p, f"text {p}", p.upper()) for p in step)))
        for number, step in enumerate(steps)
    )
    hops = tuple(Hop(f"{name}.{number}", str(number), "FOUND") for number in range(len(steps)))
    return Episode(question, searched, Outcome(answer, hops, malformed))


class Shelf:
    """Returns the same two passages for every search and remembers the size of each call."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        self.calls.append(len(searches))
        return [Retrieval((Passage("a", ""), Passage("x", ""))) for _ in searches]
