"""A language model as the judge of answers: whether one is right (``judge``), or how right it is (``semantic``)."""

import json
import re
from collections.abc import Sequence

from harr.rag.pipelines.replies import chat
from harr.types import Episode, Generate, Generator, Value

RUBRIC = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The scores of ``semantic.txt``."""
_VERDICT = re.compile(r'\{\s*"correct"\s*:\s*(true|false)\s*\}')
_GRADE = re.compile(r'\{\s*"score"\s*:\s*([01](?:\.\d+)?)\s*\}')


def verdicts(judge: Generator, episodes: Sequence[Episode]) -> tuple[list[Value], int]:
    """Return verdicts (1.0 or 0.0; 0.0 without an answer, None if unreadable), and the number of unreadable ones."""
    answered = [i for i, episode in enumerate(episodes) if episode.answer]
    values: list[Value] = [0.0] * len(episodes)
    requests = [_request("judge", episodes[i]) for i in answered]
    for i, reply in zip(answered, judge.complete(requests) if requests else [], strict=True):
        values[i] = verdict_of(reply)
    return values, values.count(None)


def grades(judge: Generator, episodes: Sequence[Episode]) -> tuple[list[Value], int]:
    """Return the grade of every answer by ``semantic.txt``, and how many of the judge's replies are unreadable.

    0.0, without a request, for a missing answer or an invalid search graph (J x D of R-Search, arXiv 2506.08352).
    None for a question without gold answers, and for an unreadable reply.
    """
    values: list[Value] = [0.0 if episode.question.answers else None for episode in episodes]
    graded = [i for i, e in enumerate(episodes) if e.answer and e.question.answers and not e.outcome.graph]
    requests = [_request("semantic", episodes[i]) for i in graded]
    for i, reply in zip(graded, judge.complete(requests) if requests else [], strict=True):
        values[i] = grade_of(reply)
    return values, sum(values[i] is None for i in graded)


def verdict_of(reply: str) -> float | None:
    """Return the last verdict of a reply; None without one.

    >>> verdict_of('Well: {"correct": true}'), verdict_of("yes")
    (1.0, None)
    """
    matches = _VERDICT.findall(reply)
    return float(matches[-1] == "true") if matches else None


def grade_of(reply: str) -> float | None:
    """Return the last score of a reply; None without one, or if it is not in the rubric.

    >>> grade_of('{"score": 0.75}'), grade_of('{"score": 1}'), grade_of('{"score": 0.8}'), grade_of("0.75")
    (0.75, 1.0, None, None)
    """
    matches = _GRADE.findall(reply)
    return float(matches[-1]) if matches and float(matches[-1]) in RUBRIC else None


def is_readable(request: Generate, reply: str) -> bool:
    """Return whether a reply of the judge can be read, and so be cached."""
    graded = any('"score"' in message["content"] for message in request.messages if message["role"] == "system")
    return (grade_of(reply) if graded else verdict_of(reply)) is not None


def _request(name: str, episode: Episode) -> Generate:
    """Return a judge's messages. The answer is one JSON string, so that it cannot add lines to the prompt."""
    gold, answer = (json.dumps(text, ensure_ascii=False) for text in (episode.question.answers, episode.answer))
    return chat(name, question=episode.question.text, gold=gold, answer=answer)
