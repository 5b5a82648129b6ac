"""The multi-step pipeline: a planner asks sub-queries, a reader answers each from the passages found.

After HARR's planner and reader pipeline (arXiv 2602.03645). What malformed replies do:

- a planner reply that is not the asked-for JSON ends the episode at once, with the answer "";
- a reader reply that is not the asked-for JSON counts as AMBIGUOUS with an empty answer.

Both are counted in ``Outcome.malformed``. An answer of "unknown" becomes "", which scores 0.
Text around the JSON object (a code fence, ``<think>`` notes) is tolerated; the last object counts.
"""

import json
import re
from collections.abc import Generator as PyGenerator, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from harr.types import Generate, Hop, Outcome, Passage, Question, Request, Retrieval, Search

STATUSES = ("FOUND", "NOT_FOUND", "AMBIGUOUS")
_PROMPTS = Path(__file__).parent / "prompts"
_THOUGHTS = re.compile(r"<think>.*?(</think>|$)", re.DOTALL)
_DECODER = json.JSONDecoder()


def multistep(question: Question, *, max_hops: int) -> PyGenerator[Request, Any, Outcome]:
    """Ask at most ``max_hops`` sub-queries, then write the answer from what was found."""
    hops: tuple[Hop, ...] = ()
    malformed = 0
    while len(hops) < max_hops:
        plan = _last_json((yield _prompt("planner", question, hops)), "action")
        action, sub_query = _line(plan.get("action")).upper(), _line(plan.get("sub_query"))
        if action == "STOP":
            break
        if action != "ASK" or not sub_query:
            return Outcome("", hops, malformed + 1)
        retrieval: Retrieval = yield Search(question, sub_query, hops)
        passages = _passages_text(retrieval.passages)
        reading = _last_json(
            (yield _prompt("reader", question, hops, sub_query=sub_query, passages=passages)), "status"
        )
        status, answer = _line(reading.get("status")).upper(), _line(reading.get("answer"))
        if status not in STATUSES or (status == "FOUND" and not answer):
            status, answer, malformed = "AMBIGUOUS", "", malformed + 1
        hops = (*hops, Hop(sub_query, answer, status))
    return Outcome(_short_answer((yield _prompt("answer", question, hops))), hops, malformed)


def _prompt(name: str, question: Question, hops: Sequence[Hop], **values: str) -> Generate:
    """The chat messages of one prompt file; values are put in once and never expanded again."""
    system, user = _templates(name)
    history = [{"sub_query": hop.query, "answer": hop.answer, "status": hop.status} for hop in hops]
    shown = json.dumps(history, ensure_ascii=False)
    content = user.substitute(question=_line(question.text), history=shown, **values)
    return Generate(({"role": "system", "content": system}, {"role": "user", "content": content}))


@cache
def _templates(name: str) -> tuple[str, Template]:
    """System text and user template of ``prompts/<name>.txt``, which a line of dashes divides."""
    system, _, user = (_PROMPTS / f"{name}.txt").read_text(encoding="utf-8").partition("\n---\n")
    return system.strip(), Template(user.strip())


def _passages_text(passages: Sequence[Passage]) -> str:
    """Two lines per passage: its number and title, and its text."""
    lines = [f"[{number}] {_line(p.title)}\n{_line(p.text)}" for number, p in enumerate(passages, start=1)]
    return "\n".join(lines)


def _last_json(reply: str, key: str) -> dict[str, Any]:
    """The last JSON object with ``key`` in a reply; empty where there is none.

    >>> _last_json('Sure:\\n```json\\n{"action": "STOP"}\\n```', "action")
    {'action': 'STOP'}
    >>> _last_json("I would stop.", "action")
    {}
    """
    text = _THOUGHTS.sub("", reply)
    found: dict[str, Any] = {}
    start = text.find("{")
    while start >= 0:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            value, end = None, start + 1
        if isinstance(value, dict) and key in value:
            found = value
        start = text.find("{", end)
    return found


def _short_answer(reply: str) -> str:
    """The last line of a reply without a leading "Final answer:"; "" for unknown.

    >>> _short_answer("<think>hm</think>\\nFinal answer: Ashford."), _short_answer("Unknown.")
    ('Ashford', '')
    """
    lines = _THOUGHTS.sub("", reply).strip().splitlines() or [""]
    answer = re.sub(r"^(final |short )?answer:", "", lines[-1].strip(), flags=re.IGNORECASE).strip(" \"'`*")
    answer = answer.removesuffix(".")
    return "" if answer.lower() == "unknown" else answer


def _line(value: object) -> str:
    """A value as one line of text; "" for anything but text and numbers."""
    return " ".join(str(value).split()) if isinstance(value, str | int | float) else ""
