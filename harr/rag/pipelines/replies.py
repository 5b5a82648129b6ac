"""Prompts and replies of pipelines: prompt files, passages as text, and tolerant parsers.

Text around a JSON object (a code fence, ``<think>`` notes) is tolerated; the last object counts.
"""

import json
import re
from collections.abc import Generator as PyGenerator, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from harr.rag.pipelines.tags import escape, strip_tags
from harr.types import Generate, Hop, Passage, Question, Request, Retrieval, Search

JSON_CHARACTERS = 32_768
"""Number of characters at a reply's end that are searched for JSON: every bracket is tried, so long texts are slow."""
Framed = str | tuple[str, str]
"""A template of a growing text: its name, or the model's own text before and after a user turn."""
STATUSES = ("FOUND", "NOT_FOUND", "AMBIGUOUS")
_THOUGHTS = re.compile(r"<think>.*?(</think>|$)", re.DOTALL)
_DECODER = json.JSONDecoder()


def look_up(
    question: Question,
    hops: Sequence[Hop],
    sub_query: str,
    resolved: str = "",
    thought: str = "",
    *,
    reader_sees: str,
) -> PyGenerator[Request, Any, tuple[Hop, bool, int, bool]]:
    """Search for a sub-query and let a reader answer it from the passages, or from the error.

    ``reader_sees``: ``sub_query`` and the passages alone (HARR), or the question and the ``history`` as well.

    Returns: the finished hop; whether the reader's reply was malformed, which counts as AMBIGUOUS with an
    empty answer; how many control tags were escaped in the passages; and whether a source failed the search.
    """
    retrieval: Retrieval = yield Search(question, sub_query, tuple(hops), resolved=resolved, thought=thought)
    has_failed = bool(retrieval.error)
    passages, escaped = escape(f"Error: {line(retrieval.error)}") if has_failed else passages_text(retrieval.passages)
    name = "reader_history" if reader_sees == "history" else "reader"
    reading = last_json((yield prompt(name, question, hops, sub_query=sub_query, passages=passages)), "status")
    status, answer = line(reading.get("status")).upper(), line(reading.get("answer"))
    if status not in STATUSES or (status == "FOUND" and not answer):
        return Hop(sub_query, "", "AMBIGUOUS"), True, escaped, has_failed
    return Hop(sub_query, answer, status), False, escaped, has_failed


@cache
def prompt_file(name: str) -> str:
    """Return the text of ``prompts/<name>.txt``."""
    return (Path(__file__).parent / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def chat(name: str, **values: str) -> Generate:
    """Return the system and user messages of a prompt file, which a line of dashes separates.

    Values are inserted once and never expanded again.
    """
    return messages(prompt_file(name), **values)


def messages(text: str, **values: str) -> Generate:
    """Return the messages of a prompt's text, as :func:`chat` does for a file."""
    system, _, user = text.partition("\n---\n")
    content = Template(user.strip()).substitute(values)
    return Generate(({"role": "system", "content": system.strip()}, {"role": "user", "content": content}))


def prompt(name: str, question: Question, hops: Sequence[Hop], **values: str) -> Generate:
    """Return the messages of a prompt file that shows the question and the history."""
    history = [{"sub_query": hop.query, "answer": hop.answer, "status": hop.status} for hop in hops]
    return chat(name, question=line(question.text), history=json.dumps(history, ensure_ascii=False), **values)


def opening(name: str, question: Question, template: Framed, prefix: str = "", **values: object) -> tuple[str, int]:
    """Return the first text that a model continues, and how many control tags of the question were escaped.

    ``template``: ``plain`` is the prompt file, ``chatml`` wraps it in Qwen's chat markup, a frame in the model's own;
    ``bare`` is the question. All but the last end with ``prefix``, the start of the model's turn.
    """
    query, escaped = escape(" ".join(question.text.split()))
    query = query if query.endswith("?") else f"{query}?"
    if template == "bare":
        return f"Question: {query}\n", escaped
    text = Template(prompt_file(name)).substitute(values, question=query)
    if not isinstance(template, str):
        before, after = template
        return before + text.strip() + after + ("" if after.rstrip().endswith(prefix) else prefix), escaped
    return (chatml(text) if template == "chatml" else text) + prefix, escaped


def chatml(text: str) -> str:
    """Return a text as a user turn in Qwen's chat markup, up to the start of the model's turn."""
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def passages_text(passages: Sequence[Passage]) -> tuple[str, int]:
    """Return two lines per passage (number and title, then text), and how many control tags were escaped.

    >>> passages_text([Passage("p", "Born in Bath.", "Ada Brown")])
    ('[1] Ada Brown\\nBorn in Bath.', 0)
    """
    lines = [f"[{number}] {line(p.title)}\n{line(p.text)}" for number, p in enumerate(passages, start=1)]
    return escape("\n".join(lines))


def strip_thoughts(reply: str) -> str:
    """Return a reply without its thoughts, even if the last one was cut off, or the prompt began the first.

    >>> strip_thoughts("<think>Rome?</think>Bath<think>or"), strip_thoughts("Rome?</think>Bath")
    ('Bath', 'Bath')
    """
    return _THOUGHTS.sub("", reply).rpartition("</think>")[2]


def said(text: str) -> str:
    """Return a model's text before it acts, thoughts or not, as one line without tags, for ``Search.thought``.

    >>> said("<think>Her mother\\nfirst.</think> So: ")
    'Her mother first. So:'
    """
    return line(strip_tags(text))


def last_json(reply: str, key: str) -> dict[str, Any]:
    """Return the last JSON object with ``key`` in a reply; {} without one.

    >>> last_json('Sure:\\n```json\\n{"action": "STOP"}\\n```', "action")
    {'action': 'STOP'}
    >>> last_json("I would stop.", "action")
    {}
    """
    text = strip_thoughts(reply)[-JSON_CHARACTERS:]
    result: dict[str, Any] = {}
    start = text.find("{")
    while start >= 0:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except RecursionError:  # a thousand brackets deep; so is the rest
            break
        except ValueError:
            value, end = None, start + 1
        if isinstance(value, dict) and key in value:
            result = value
        start = text.find("{", end)
    return result


def short_answer(reply: str) -> str:
    """Return the last line of a reply without a leading "Final answer:"; "" for unknown.

    >>> short_answer("<think>hm</think>\\nFinal answer: Ashford."), short_answer("Unknown.")
    ('Ashford', '')
    """
    lines = strip_thoughts(reply).strip().splitlines() or [""]
    answer = re.sub(r"^(final |short )?answer:", "", lines[-1].strip(), flags=re.IGNORECASE).strip(" \"'`*")
    answer = answer.removesuffix(".")
    return "" if answer.lower() == "unknown" else answer


def line(value: object) -> str:
    """Return a value as one line of text, without what UTF-8 cannot encode; "" for anything but text and numbers.

    >>> line("Bath\\nor \\ud800 Rome"), line(["Bath"])
    ('Bath or Rome', '')
    """
    if not isinstance(value, str | int | float):
        return ""
    return " ".join(str(value).encode("utf-8", "ignore").decode("utf-8").split())
