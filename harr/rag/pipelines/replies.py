"""What pipelines say and understand: prompt files, passages as text, and replies read with patience.

Text around a JSON object (a code fence, ``<think>`` notes) is tolerated; the last object counts.
"""

import json
import re
from collections.abc import Generator as PyGenerator, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from harr.rag.pipelines.tags import escape
from harr.types import Generate, Hop, Passage, Question, Request, Retrieval, Search

LOOKED_THROUGH = 32_768
"""Number of a reply's last characters that may hold JSON: every bracket is a try, which takes longer in a longer
text."""
STATUSES = ("FOUND", "NOT_FOUND", "AMBIGUOUS")
_PROMPTS = Path(__file__).parent / "prompts"
_THOUGHTS = re.compile(r"<think>.*?(</think>|$)", re.DOTALL)
_DECODER = json.JSONDecoder()


def look_up(
    question: Question, hops: Sequence[Hop], sub_query: str
) -> PyGenerator[Request, Any, tuple[Hop, bool, int, bool]]:
    """Search for a sub-query and let a reader answer it from the passages found, or from why there are none.

    Returns: the finished hop; whether the reader's reply was malformed, which counts as AMBIGUOUS with an
    empty answer; how many control tags were escaped in the passages; and whether a source failed the search.
    """
    retrieval: Retrieval = yield Search(question, sub_query, tuple(hops))
    failed = bool(retrieval.error)
    passages, escaped = escape(f"Error: {line(retrieval.error)}") if failed else passages_text(retrieval.passages)
    reading = last_json((yield prompt("reader", question, hops, sub_query=sub_query, passages=passages)), "status")
    status, answer = line(reading.get("status")).upper(), line(reading.get("answer"))
    if status not in STATUSES or (status == "FOUND" and not answer):
        return Hop(sub_query, "", "AMBIGUOUS"), True, escaped, failed
    return Hop(sub_query, answer, status), False, escaped, failed


def prompt(name: str, question: Question, hops: Sequence[Hop], **values: str) -> Generate:
    """Return the chat messages of one prompt file; values are put in once and never expanded again."""
    system, user = templates(name)
    history = [{"sub_query": hop.query, "answer": hop.answer, "status": hop.status} for hop in hops]
    shown = json.dumps(history, ensure_ascii=False)
    content = user.substitute(question=line(question.text), history=shown, **values)
    return Generate(({"role": "system", "content": system}, {"role": "user", "content": content}))


@cache
def templates(name: str) -> tuple[str, Template]:
    """Return the system text and user template of ``prompts/<name>.txt``, which a line of dashes divides."""
    system, _, user = (_PROMPTS / f"{name}.txt").read_text(encoding="utf-8").partition("\n---\n")
    return system.strip(), Template(user.strip())


def passages_text(passages: Sequence[Passage]) -> tuple[str, int]:
    """Return two lines per passage, number and title, then text; and how many control tags were escaped.

    >>> passages_text([Passage("p", "Born in Bath.", "Ada Brown")])
    ('[1] Ada Brown\\nBorn in Bath.', 0)
    """
    lines = [f"[{number}] {line(p.title)}\n{line(p.text)}" for number, p in enumerate(passages, start=1)]
    return escape("\n".join(lines))


def without_thoughts(reply: str) -> str:
    """Return a reply without its thoughts, also where the last one was cut off, or the prompt began the first.

    >>> without_thoughts("<think>Rome?</think>Bath<think>or"), without_thoughts("Rome?</think>Bath")
    ('Bath', 'Bath')
    """
    return _THOUGHTS.sub("", reply).rpartition("</think>")[2]


def last_json(reply: str, key: str) -> dict[str, Any]:
    """Return the last JSON object with ``key`` in a reply; empty where there is none.

    >>> last_json('Sure:\\n```json\\n{"action": "STOP"}\\n```', "action")
    {'action': 'STOP'}
    >>> last_json("I would stop.", "action")
    {}
    """
    text = without_thoughts(reply)[-LOOKED_THROUGH:]
    found: dict[str, Any] = {}
    start = text.find("{")
    while start >= 0:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except RecursionError:  # a thousand brackets deep; so is what follows
            break
        except ValueError:
            value, end = None, start + 1
        if isinstance(value, dict) and key in value:
            found = value
        start = text.find("{", end)
    return found


def short_answer(reply: str) -> str:
    """Return the last line of a reply without a leading "Final answer:"; "" for unknown.

    >>> short_answer("<think>hm</think>\\nFinal answer: Ashford."), short_answer("Unknown.")
    ('Ashford', '')
    """
    lines = without_thoughts(reply).strip().splitlines() or [""]
    answer = re.sub(r"^(final |short )?answer:", "", lines[-1].strip(), flags=re.IGNORECASE).strip(" \"'`*")
    answer = answer.removesuffix(".")
    return "" if answer.lower() == "unknown" else answer


def line(value: object) -> str:
    """Return a value as one line of text, without what no encoding can write; "" for anything but text and numbers.

    >>> line("Bath\\nor \\ud800 Rome"), line(["Bath"])
    ('Bath or Rome', '')
    """
    if not isinstance(value, str | int | float):
        return ""
    return " ".join(str(value).encode("utf-8", "ignore").decode("utf-8").split())
