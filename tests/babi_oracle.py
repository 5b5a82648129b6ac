"""The bAbI solver, applied to sentences with unrelated ones in between."""

from collections.abc import Sequence

from harr_lengths.babi_rules import Event, Solution, event_of, solve


def gold_of(task: int, question: str, sentences: Sequence[str]) -> Solution:
    """Return the answer and the positions of the facts that support it; None if it does not follow."""
    return solve(task, question, [event_of(sentence) or Event("", "", "") for sentence in sentences])
