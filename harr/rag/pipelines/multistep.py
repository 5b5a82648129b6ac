"""The multi-step pipeline: a planner asks sub-queries, a reader answers each from the passages found.

After HARR's planner and reader pipeline (arXiv 2602.03645). Malformed replies:

- a planner reply that is not the asked-for JSON ends the episode at once, with the answer "";
- a reader reply that is not the asked-for JSON counts as AMBIGUOUS with an empty answer.

Both are counted in ``Outcome.malformed``. An answer of "unknown" becomes "", which scores 0.

A planner may add the key ``resolved``: its sub-query with the pronoun replaced by the name. It is stored with the
search (:class:`harr.types.Search`) and appears in no state or prompt.
"""

from collections.abc import Generator as PyGenerator
from typing import Any

from harr.rag.pipelines.replies import last_json, line, look_up, prompt, short_answer
from harr.types import Hop, Outcome, Question, Request


def multistep(
    question: Question, *, max_hops: int, reader_sees: str = "sub_query"
) -> PyGenerator[Request, Any, Outcome]:
    """Ask at most ``max_hops`` sub-queries, then write the answer from what was found."""
    hops: tuple[Hop, ...] = ()
    malformed = escaped = errors = 0
    while len(hops) < max_hops:
        plan = last_json((yield prompt("planner", question, hops)), "action")
        action, sub_query = line(plan.get("action")).upper(), line(plan.get("sub_query"))
        if action == "STOP":
            break
        if action != "ASK" or not sub_query:
            return Outcome("", hops, malformed + 1, escaped, tool_errors=errors)
        resolved = line(plan.get("resolved"))
        hop, bad, tags, failure = yield from look_up(question, hops, sub_query, resolved, reader_sees=reader_sees)
        hops, malformed, escaped, errors = (*hops, hop), malformed + bad, escaped + tags, errors + failure
    answer = short_answer((yield prompt("answer", question, hops)))
    return Outcome(answer, hops, malformed, escaped, tool_errors=errors)
