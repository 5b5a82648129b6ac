"""Rule-based query-rewriting baselines, and occlusion: searches are changed before a retriever sees them.

No model learns here. A rule of ``RULES`` writes a query from the question, the finished hops and the current query, for
the untrained encoder or BM25, which see no history. Occlusion hides one part of the state from the trained retriever
(:func:`hidden_parts`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harr.types import Retrieval, Retriever, Search

Rule = Callable[[Search], str]
"""A function that writes the query."""
Change = Callable[[Search], Search]
"""A function from a search to a changed one."""


def _answers(search: Search) -> list[str]:
    """Return the answers of the hops, without empty ones."""
    return [hop.answer for hop in search.hops if hop.answer]


RULES: dict[str, Rule] = {
    "last_answer": lambda search: " ".join([*_answers(search)[-1:], search.query]),
    "first_answer": lambda search: " ".join([*_answers(search)[:1], search.query]),
    "all_answers": lambda search: " ".join([*_answers(search), search.query]),
    "question_query": lambda search: f"{search.question.text} {search.query}",
    "oracle_query": lambda search: search.resolved or search.query,
}
"""The rules by the names that ``Arm.query`` takes."""


def rewrite_query(rule: Rule) -> Change:
    """Return the change that replaces the query by the text of a rule, and removes the history."""
    return lambda search: replace(search, query=rule(search), hops=())


def _hide_question(search: Search) -> Search:
    return replace(search, question=replace(search.question, text=""))


def _hide_history(search: Search) -> Search:
    return replace(search, hops=())


def _hide_query(search: Search) -> Search:
    return replace(search, query="")


def _hide_thought(search: Search) -> Search:
    return replace(search, thought="")


def hidden_parts(state: str, *, writes_queries: bool) -> dict[str, Change]:
    """Return changes that hide each part of a state (``retriever.state``); ``writes_queries``: queries are written.

    >>> list(hidden_parts("json", writes_queries=True)), list(hidden_parts("sep", writes_queries=True))
    (['question', 'history', 'query'], ['question', 'history', 'query'])
    >>> list(hidden_parts("thought", writes_queries=True)), list(hidden_parts("sep", writes_queries=False))
    (['question', 'thought', 'query'], ['question', 'history'])
    """
    if not writes_queries:
        return {"question": lambda search: _hide_query(_hide_question(search)), "history": _hide_history}
    context = {"thought": _hide_thought} if state == "thought" else {"history": _hide_history}
    return {"question": _hide_question, **context, "query": _hide_query}


@dataclass
class Rewritten:
    """A retriever that changes every search and passes it on."""

    retriever: Retriever
    change: Change

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Answer all searches by one call of the other retriever."""
        return self.retriever.retrieve([self.change(search) for search in searches])
