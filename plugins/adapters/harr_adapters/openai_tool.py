"""A trained retriever as a tool for OpenAI's function calling: its schema, and the answer to a call.

With each search the model says what it learned from the one before, and the retriever reads that.
"""

import json
from typing import Any

from harr.builders.trained import Session

DESCRIPTION = (
    "Search the corpus. The search reads the question, the searches before and what they taught, so ask for one fact "
    "at a time, and say in `learned` what the last search taught."
)
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": DESCRIPTION,
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "what to look for, in a short question"},
                "learned": {
                    "type": "string",
                    "description": "the answer that the last search gave; empty where it gave none, or at the first",
                },
            },
            "required": ["query", "learned"],
            "additionalProperties": False,
        },
    },
}
"""An entry of ``tools`` in a request to ``/v1/chat/completions``."""


def answer_call(session: Session, arguments: str) -> str:
    """Return the text of the tool message for a call with these ``arguments``, JSON as the model wrote it.

    ``session`` is that of the user's question (``retriever.session(question)``) and records the call. A mistake by the
    model is answered in the message; a retriever that cannot answer raises.
    """
    try:
        call = json.loads(arguments)
        query, learned = call["query"], call.get("learned", "")
        if not (isinstance(query, str) and isinstance(learned, str) and query.strip()):
            raise TypeError
        (query + learned).encode()  # one half of a character beyond the first 65,536 is no text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return 'error: expected {"query": "...", "learned": "..."}, with a query'
    if session.searched:
        session.learned(learned)
    return "\n".join(f"[{number}] {passage.content}" for number, passage in enumerate(session.search(query), 1))
