"""ReAct: a tool-calling agent whose tool answers each query from K passages (arXiv 2210.03629; HARR, arXiv 2602.03645).

The call is plain text in the markup of Qwen and Hermes, so any chat server will do. The tool asks a
reader for a short answer and a status; the agent and the history see only that. Thoughts
(``<think>...</think>``, also cut off) neither call nor answer. A reply that does neither is malformed: it is
counted, and the agent is told what was expected.
"""

import re
from collections.abc import Generator as PyGenerator, Mapping
from typing import Any

from harr.pipelines.tags import escape
from harr.pipelines.text import last_json, line, look_up, short_answer, templates, without_thoughts
from harr.types import Generate, Hop, Outcome, Question, Request

STOP = "</tool_call>"
CORRECTION = (
    'Reply with one <tool_call>{"name": "search", "arguments": {"query": "..."}}</tool_call> '
    'or one line "Final answer: ...".'
)
LAST_TURN = 'No more searches are possible. Reply with one line "Final answer: ...", as well as you can.'
_FINAL = re.compile(r"final answer:[\s*]*", re.IGNORECASE)


def react(question: Question, *, max_searches: int) -> PyGenerator[Request, Any, Outcome]:
    """Let the agent call its tool at most ``max_searches`` times; an episode without an answer ends with ""."""
    system, user = templates("react")
    asked, escaped = escape(line(question.text))
    messages = [_message("system", system), _message("user", user.substitute(question=asked))]
    hops: tuple[Hop, ...] = ()
    malformed = 0
    for turn in range(max_searches + 1):
        reply: str = yield Generate(tuple(messages), stop=(STOP,))
        query, answer = _query(reply), _answer(reply)
        if answer is not None and not query:
            return Outcome(answer, hops, malformed, escaped)
        messages.append(_message("assistant", f"{reply.removesuffix(STOP)}{STOP}" if query else reply))
        if turn == max_searches:
            malformed += not query
            break
        if query:
            hop, broken, found = yield from look_up(question, hops, query)
            hops, malformed, escaped = (*hops, hop), malformed + broken, escaped + found
            said, found = escape(hop.answer if hop.status == "FOUND" else f"{hop.status} {hop.answer}".strip())
            escaped += found
            told = f"<tool_response>{said}</tool_response>"
        else:
            malformed, told = malformed + 1, CORRECTION
        messages.append(_message("user", f"{told}\n{LAST_TURN}" if turn + 1 == max_searches else told))
    return Outcome("", hops, malformed, escaped)


def _query(reply: str) -> str:
    """The query of the call in a reply; "" where there is none.

    >>> _query('First her mother. <tool_call>{"name": "search", "arguments": {"query": "Who was her mother?"}}')
    'Who was her mother?'
    """
    _, tag, call = without_thoughts(reply).partition("<tool_call>")
    arguments = last_json(call, "name").get("arguments") if tag else None
    return line(arguments.get("query")) if isinstance(arguments, dict) else ""


def _answer(reply: str) -> str | None:
    """The line after the last "Final answer:" of a reply; None where there is none.

    >>> _answer("<think>Final answer: Rome?</think>Final answer: Bath\\n\\nI hope this helps!")
    'Bath'
    """
    _, *answers = _FINAL.split(without_thoughts(reply))
    return short_answer(answers[-1].partition("\n")[0]) if answers else None


def _message(role: str, content: str) -> Mapping[str, str]:
    return {"role": role, "content": content}
