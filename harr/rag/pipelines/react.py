"""ReAct: an agent that searches by calling a tool (arXiv 2210.03629; HARR, arXiv 2602.03645).

The call is plain text in the markup of Qwen and Hermes, so any chat server works. In :func:`react` the tool asks a
reader for a short answer and a status; the agent and the history see only that. In :func:`react_passages` the tool
shows the passages themselves: the conversation is one growing text, which can be trained on.

Thoughts (``<think>...</think>``, even if cut off) neither call nor answer. A reply that does neither, or makes an
invalid call, is malformed: it is counted, and the agent gets a correction.
"""

import re
from collections.abc import Generator as PyGenerator, Mapping
from typing import Any

from harr.rag.pipelines.replies import chat, last_json, line, look_up, said, short_answer, strip_thoughts
from harr.rag.pipelines.tags import escape, fault
from harr.types import Generate, Hop, Outcome, Question, Request, Retrieval, Search

TOOL, STOP = "search", "</tool_call>"
QUERY_CHARACTERS = 2000
"""Maximum number of characters of a query: encoders cut longer ones, and a word search may reject them."""
CALL = '<tool_call>{"name": "search", "arguments": {"query": "..."}}</tool_call>'
CORRECTION = f'Reply with one {CALL} or one line "Final answer: ...".'
LAST_TURN = 'No more searches are possible. Reply with one line "Final answer: ...", as well as you can.'
ACT = f'Plan between <think> and </think>, then reply with one {CALL} or with "Final answer: ...".'
ANSWER_NOW = 'No more searches are possible. Reply with "Final answer: ...", as well as you can.'
_FINAL = re.compile(r"final answer:[\s*]*", re.IGNORECASE)


def react(
    question: Question, *, max_searches: int, reader_sees: str = "sub_query"
) -> PyGenerator[Request, Any, Outcome]:
    """Let the agent call its tool at most ``max_searches`` times; an episode without an answer ends with ""."""
    messages, escaped = _opening("react", question)
    hops: tuple[Hop, ...] = ()
    malformed = errors = 0
    for turn in range(max_searches + 1):
        reply: str = yield Generate(tuple(messages), stop=(STOP,))
        (query, _), answer = _call(reply), _answer(reply)
        if answer is not None and not query:
            return Outcome(short_answer(answer.partition("\n")[0]), hops, malformed, escaped, tool_errors=errors)
        messages.append(_message("assistant", f"{reply.removesuffix(STOP)}{STOP}" if query else reply))
        if turn == max_searches:
            malformed += not query
            break
        if query:
            lookup = look_up(question, hops, query, thought=_before_call(reply), reader_sees=reader_sees)
            hop, bad, tags, failure = yield from lookup
            hops, malformed, escaped, errors = (*hops, hop), malformed + bad, escaped + tags, errors + failure
            text, tags = escape(hop.answer if hop.status == "FOUND" else f"{hop.status} {hop.answer}".strip())
            escaped += tags
            response = f"<tool_response>{text}</tool_response>"
        else:
            malformed, response = malformed + 1, CORRECTION
        messages.append(_message("user", f"{response}\n{LAST_TURN}" if turn + 1 == max_searches else response))
    return Outcome("", hops, malformed, escaped, tool_errors=errors)


def react_passages(question: Question, *, max_searches: int) -> PyGenerator[Request, Any, Outcome]:
    """Let the agent search at most ``max_searches`` times and read the passages; its answer may be long.

    A hop of the history is a query and the thought that followed its passages. The agent sees an error for an invalid
    call or a failed source, which is counted (``Outcome.tool_errors``).
    """
    messages, escaped = _opening("react_passages", question)
    hops: tuple[Hop, ...] = ()
    faults: tuple[str, ...] = ()
    query, malformed, errors = "", 0, 0
    for turn in range(max_searches + 1):
        reply: str = yield Generate(tuple(messages), stop=(STOP,))
        hops += (Hop(query, _thought(reply)),) if query else ()
        (query, reason), answer = _call(reply), _answer(reply)
        late = "call after the last turn" if query and turn == max_searches else ""
        reason = reason or late or fault(reply, acts=bool(query) or answer is not None)
        faults += (reason,) if reason else ()
        if answer is not None and not query:
            return Outcome(_clean_answer(answer), hops, malformed, escaped, turn + 1, faults, tool_errors=errors)
        malformed += not query
        if turn == max_searches:
            break
        if query:
            retrieval: Retrieval = yield Search(question, query, hops, thought=_before_call(reply))
            (response, tags), has_failed = _write_response(retrieval), bool(retrieval.error)
            escaped += tags
        else:
            has_failed = "<tool_call>" in strip_thoughts(reply)
            response = f"<tool_response>\nError: {reason}\n</tool_response>\n{ACT}" if has_failed else ACT
        errors += has_failed
        reply_text = f"{reply.removesuffix(STOP)}{STOP}" if query or has_failed else reply
        last = f"{response}\n{ANSWER_NOW}" if turn + 1 == max_searches else response
        messages += [_message("assistant", reply_text), _message("user", last)]
    return Outcome("", hops, malformed, escaped, max_searches + 1, faults, tool_errors=errors)


def _opening(name: str, question: Question) -> tuple[list[Mapping[str, str]], int]:
    """Return the first messages, and how many tags were escaped in the question."""
    text, escaped = escape(line(question.text))
    return list(chat(name, question=text).messages), escaped


def _write_response(retrieval: Retrieval) -> tuple[str, int]:
    """Return the tool's response: passages with ids and titles, or why there are none; and the escaped tags.

    >>> from harr.types import Passage
    >>> _write_response(Retrieval((Passage("p7", "Rest.</tool_response>", "Flu"),)))
    ('<tool_response>\\n[p7] Flu\\nRest.&lt;/tool_response&gt;\\n</tool_response>', 1)
    >>> _write_response(Retrieval((), error="the source does not answer"))[0]
    '<tool_response>\\nError: the source does not answer\\n</tool_response>'
    """
    passages = [f"{line(f'[{p.id}] {p.title}')}\n{line(p.text)}" for p in retrieval.passages]
    text = f"Error: {line(retrieval.error)}" if retrieval.error else "\n".join(passages) or "Nothing was found."
    block, escaped = escape(text)
    return f"<tool_response>\n{block}\n</tool_response>", escaped


def _call(reply: str) -> tuple[str, str]:
    """Return the query of the call in a reply, and the fault of the call; ("", "") without a call.

    >>> _call('First her mother. <tool_call>{"name": "search", "arguments": {"query": "Who was her mother?"}}')
    ('Who was her mother?', '')
    >>> _call('<tool_call>{"name": "open_file", "arguments": {"query": "notes"}}')
    ('', 'unknown tool')
    """
    _, tag, rest = strip_thoughts(reply).partition("<tool_call>")
    if not tag:
        return "", ""
    call_text, _, after = rest.partition(STOP)
    call = last_json(call_text, "name")
    arguments = call.get("arguments")
    if isinstance(arguments, str):  # as in OpenAI's API
        arguments = last_json(arguments, "query")
    query = line(arguments.get("query")) if isinstance(arguments, dict) else ""
    if not call:
        return "", "the call is not a JSON object with a name"
    if call["name"] != TOOL:
        return "", "unknown tool"
    if not query:
        return "", "no query"
    if len(query) > QUERY_CHARACTERS:
        return "", f"the query has more than {QUERY_CHARACTERS} characters"
    return query, "text after the call" if (call_text.rpartition("}")[2] + after).strip() else ""


def _answer(reply: str) -> str | None:
    """Return the text after the last "Final answer:" of a reply; None without one.

    >>> _answer("<think>Final answer: Rome?</think>Final answer: Bath\\n\\nI hope this helps!")
    'Bath\\n\\nI hope this helps!'
    """
    _, *answers = _FINAL.split(strip_thoughts(reply))
    return answers[-1] if answers else None


def _clean_answer(answer: str) -> str:
    """Return an answer of any length; "" for unknown.

    >>> _clean_answer(" Rest.\\nDrink. "), _clean_answer("Unknown.")
    ('Rest.\\nDrink.', '')
    """
    text = answer.strip()
    return "" if text.rstrip(".").lower() == "unknown" else text


def _thought(reply: str) -> str:
    """Return the thought of a reply before it acts, on one line.

    >>> _thought("<think>It is\\ncatching.</think><tool_call>{")
    'It is catching.'
    """
    thought = _FINAL.split(reply.rpartition("</think>")[0] or reply.partition("<tool_call>")[0])[0]
    return line(thought.removeprefix("<think>"))


def _before_call(reply: str) -> str:
    """Return the text of a reply before its call; calls within thoughts do not count.

    >>> _before_call("<think>Call <tool_call>?</think> Her mother first. <tool_call>{")
    'Call ? Her mother first.'
    """
    thoughts, _, rest = reply.rpartition("</think>")
    return said(f"{thoughts} {rest.partition('<tool_call>')[0]}")


def _message(role: str, content: str) -> Mapping[str, str]:
    return {"role": role, "content": content}
