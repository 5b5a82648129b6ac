"""What a sceptic searches for: searches that are changed by a rule before a retriever sees them.

No model learns here. A rule of ``RULES`` writes a text from the question, the finished hops and the current query;
whoever searches for it is the untrained encoder or BM25, and sees no history. Of occlusion a part of the state is left
out, and the trained retriever reads the rest (:func:`hidden_parts`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harr.types import Retrieval, Retriever, Search

Rule = Callable[[Search], str]
"""Writes the text that is searched for."""
Change = Callable[[Search], Search]
"""Makes another search of one."""


def _answers(search: Search) -> list[str]:
    """Return what the hops have found, in their order; a hop without an answer is left out."""
    return [hop.answer for hop in search.hops if hop.answer]


RULES: dict[str, Rule] = {
    "last_answer": lambda search: " ".join([*_answers(search)[-1:], search.query]),
    "first_answer": lambda search: " ".join([*_answers(search)[:1], search.query]),
    "all_answers": lambda search: " ".join([*_answers(search), search.query]),
    "question_query": lambda search: f"{search.question.text} {search.query}",
    "oracle_query": lambda search: search.resolved or search.query,
}
"""The rules by the names that ``Arm.query`` takes."""


def searching_for(rule: Rule) -> Change:
    """Return what puts the text of a rule in place of the query, and leaves out the history."""
    return lambda search: replace(search, query=rule(search), hops=())


def _without_question(search: Search) -> Search:
    return replace(search, question=replace(search.question, text=""))


def _without_history(search: Search) -> Search:
    return replace(search, hops=())


def _without_query(search: Search) -> Search:
    return replace(search, query="")


def _without_thought(search: Search) -> Search:
    return replace(search, thought="")


def hidden_parts(state: str, *, writes_queries: bool) -> dict[str, Change]:
    """Return what hides each part of a state (``retriever.state``); ``writes_queries``: the query is not the question.

    >>> list(hidden_parts("json", writes_queries=True)), list(hidden_parts("sep", writes_queries=True))
    (['question', 'history', 'query'], ['history', 'query'])
    >>> list(hidden_parts("thought", writes_queries=True)), list(hidden_parts("sep", writes_queries=False))
    (['question', 'thought', 'query'], ['question', 'history'])
    """
    if not writes_queries:
        return {"question": lambda search: _without_query(_without_question(search)), "history": _without_history}
    question: dict[str, Change] = {"question": _without_question} if state != "sep" else {}
    told = {"thought": _without_thought} if state == "thought" else {"history": _without_history}
    return question | told | {"query": _without_query}


@dataclass
class Rewritten:
    """A retriever that hands every search on to another one, changed."""

    retriever: Retriever
    change: Change

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Answer all searches by one call of the other retriever."""
        return self.retriever.retrieve([self.change(search) for search in searches])
