"""Search-R1: the model writes one growing text and searches by tags in it (arXiv 2503.09516, section 3).

A turn ends at ``</search>`` or ``</answer>``. After a search the passages are inserted into the text between
information tags, and the model continues. A hop of the history is a search and the thought that followed its results. A
turn with neither tag is malformed: it is counted, and the model gets a correction. Tags inside passages are escaped and
counted; only the model's own text is read as an action.
"""

import re
from collections.abc import Generator as PyGenerator, Sequence
from typing import Any

from harr.rag.pipelines.replies import Framed, opening, said
from harr.rag.pipelines.tags import escape, fault
from harr.types import Generate, Hop, Outcome, Passage, Question, Request, Retrieval, Search

STOPS = ("</search>", "</answer>")
CORRECTION = (
    "\nThis is no valid action. To search, write the query between <search> and </search>; "
    "to answer, write the answer between <answer> and </answer>. Try again.\n"
)
_ACTION = re.compile(r"<(search|answer)>(.*?)(?:</\1>|$)", re.DOTALL)
_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|$)", re.DOTALL)


def search_r1(
    question: Question, *, max_searches: int, template: Framed = "plain"
) -> PyGenerator[Request, Any, Outcome]:
    """Let the model search at most ``max_searches`` times; one more turn is for the answer.

    The model sees the error of a failed source; these are counted (``Outcome.tool_errors``).

    ``template``: ``plain`` puts the instructions first, ``chatml`` wraps them in Qwen's chat markup, a frame in the
    model's own; ``bare`` shows the question only. An episode without an answer ends with the answer "".
    """
    text, escaped = opening("search_r1", question, template)
    hops: tuple[Hop, ...] = ()
    faults: tuple[str, ...] = ()
    query, malformed, errors = "", 0, 0
    for turn in range(max_searches + 1):
        completion: str = yield Generate(prompt=text, stop=STOPS)
        action, content, thought = _read(completion)
        acts = action == "answer" or (action == "search" and turn < max_searches)
        reason = fault(_add_closing_tag(completion, action), acts=acts, block=action)
        faults += (reason,) if reason else ()
        if query:
            hops, query = (*hops, Hop(query, thought)), ""
        if action == "answer":
            return Outcome(content, hops, malformed, escaped, turn + 1, faults, tool_errors=errors)
        if action == "search" and turn < max_searches:
            query = content
            before = said(completion.partition("<search>")[0])
            retrieval: Retrieval = yield Search(question, query, hops, thought=before)
            block, tags = information(retrieval.passages, retrieval.error)
            errors += bool(retrieval.error)
            text, escaped = f"{text}{_cut_after_action(completion, 'search')}{block}", escaped + tags
        elif not action:
            malformed += 1
            text += completion + CORRECTION
    return Outcome("", hops, malformed, escaped, max_searches + 1, faults, tool_errors=errors)


def information(passages: Sequence[Passage], error: str = "") -> tuple[str, int]:
    """Return the block with passages, or with the error, for the model, and how many tags were escaped in it.

    >>> information([Passage("p", "Ada was born in Bath.", "Ada Brown")])
    ('\\n\\n<information>Doc 1(Title: Ada Brown) Ada was born in Bath.</information>\\n\\n', 0)
    """
    block, escaped = escape(f"Error: {' '.join(error.split())}" if error else "\n".join(documents(passages)))
    return f"\n\n<information>{block}</information>\n\n", escaped


def documents(passages: Sequence[Passage]) -> list[str]:
    """Return a line per passage: its rank, its title and its text, with control tags."""
    return [
        f"Doc {n}(Title: {' '.join(p.title.split())}) {' '.join(p.text.split())}" for n, p in enumerate(passages, 1)
    ]


def _read(completion: str) -> tuple[str, str, str]:
    """Return (action, its content, the thought before it); the action is "" if it is missing or empty.

    >>> _read("<think>I need the town.</think> <search> Where was Ada born? ")
    ('search', 'Where was Ada born?', 'I need the town.')
    >>> _read("It is Bath.")
    ('', '', 'It is Bath.')
    """
    action = _ACTION.search(completion)
    before = completion[: action.start()] if action else completion
    thoughts = _THOUGHT.findall(before) or [before]
    thought = " ".join(" ".join(thoughts).split())
    content = " ".join(action[2].split()) if action else ""
    return (action[1] if action and content else ""), content, thought


def _add_closing_tag(completion: str, tag: str) -> str:
    """Return the whole completion, with the closing tag that servers cut off."""
    return completion if completion.rstrip().endswith(f"</{tag}>") else f"{completion}</{tag}>"


def _cut_after_action(completion: str, tag: str) -> str:
    """Return the completion up to the end of its action; servers cut the closing tag off."""
    action = _ACTION.search(completion)
    text = completion[: action.end()] if action else completion
    return text if text.endswith(f"</{tag}>") else f"{text}</{tag}>"
