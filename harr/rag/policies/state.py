"""The state that the retriever encodes: question, what was learnt so far, and the current query.

Two ways to write it: ``json`` is HARR's (three labelled lines, arXiv 2602.03645) and ``sep`` is
Q-RAG's (question and picked passages joined by [SEP], arXiv 2511.07328).
"""

import json
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from harr.types import Hop, Search


def state_text(search: Search, *, style: str, history: bool) -> str:
    """Return the text of one state. Without ``history`` it is the current query alone.

    >>> from harr.types import Question
    >>> search = Search(Question("q", "Where was the founder of Acme born?"), "Where was she born?",
    ...                 (Hop("Who founded Acme?", "Ada Brown", "FOUND"),))
    >>> print(state_text(search, style="json", history=True))
    Original Question: Where was the founder of Acme born?
    History: [{"sub_query": "Who founded Acme?", "status": "FOUND", "answer": "Ada Brown"}]
    Query: Where was she born?
    >>> state_text(search, style="json", history=False)
    'Query: Where was she born?'
    """
    if style == "sep":
        return " [SEP] ".join([search.query, *(hop.answer for hop in search.hops)]) if history else search.query
    if not history:
        return f"Query: {search.query}"
    entries = json.dumps([_entry(hop) for hop in search.hops], ensure_ascii=False)
    return f"Original Question: {search.question.text}\nHistory: {entries}\nQuery: {search.query}"


def state_texts(
    searches: Sequence[Search],
    *,
    style: str,
    history: bool,
    max_tokens: int,
    token_counts: Callable[[Sequence[str]], NDArray[np.int64]],
) -> tuple[list[str], int]:
    """Return the states of many searches, each within ``max_tokens``, and how many hops were dropped for it.

    The oldest hop goes first; the current query is never dropped.
    """
    shortened = list(searches)
    texts = [state_text(search, style=style, history=history) for search in shortened]
    dropped, check = 0, list(range(len(texts))) if history else []
    while check:
        counts = token_counts([texts[i] for i in check])
        check = [i for i, count in zip(check, counts, strict=True) if count > max_tokens and shortened[i].hops]
        for i in check:
            search = shortened[i]
            shortened[i] = Search(search.question, search.query, search.hops[1:], search.exclude_ids, search.k)
            texts[i] = state_text(shortened[i], style=style, history=history)
        dropped += len(check)
    return texts, dropped


def _entry(hop: Hop) -> dict[str, str]:
    status = {"status": hop.status} if hop.status else {}
    return {"sub_query": hop.query, **status, "answer": hop.answer}
