"""Rule-based query-rewriting baselines: searches are changed before a retriever sees them.

No model learns here. A rule of ``RULES`` writes a query from the question, the finished hops and the current query, for
the untrained encoder or BM25, which see no history.
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
    """Return the change that replaces the query with a rule's text and removes the history."""
    return lambda search: replace(search, query=rule(search), hops=())


@dataclass
class Rewritten:
    """A retriever that changes every search and passes it on."""

    retriever: Retriever
    change: Change

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Answer all searches in one call of the other retriever."""
        return self.retriever.retrieve([self.change(search) for search in searches])
