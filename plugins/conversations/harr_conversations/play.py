"""The pipeline of conversations: one search per turn, with the turns before it as history."""

from collections.abc import Generator
from typing import Any

from harr.types import Outcome, Question, Request, Search
from harr_conversations.data import REWRITE


def play(question: Question, *, depth: int = 10) -> Generator[Request, Any, Outcome]:
    """Search for the last turn as `harr serve` does for ``messages``; return no answer.

    ``depth``: number of passages ranked.

    >>> from harr.types import Hop
    >>> said = (Hop("Who founded Acme?", "Ada Brown"),)
    >>> next(play(Question("q/2", "Where was she born?", history=said))).hops == said
    True
    """
    yield Search(question, question.text, question.history, k=depth, resolved=question.notes.get(REWRITE, ""))
    return Outcome()
