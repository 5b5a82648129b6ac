"""What a sceptic searches for: texts written from a search by a rule, in place of the query of the pipeline.

No model learns here. A rule is a pure function of the question, the finished hops and the current query; whoever
searches for its text is the untrained encoder or BM25, and sees no history.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harr.types import Retrieval, Retriever, Search

Rule = Callable[[Search], str]
"""Writes the text that is searched for."""


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


@dataclass
class Rewritten:
    """A retriever that searches, by another one, for what a rule writes; that one sees no history."""

    retriever: Retriever
    rule: Rule

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Answer all searches by one call of the other retriever."""
        return self.retriever.retrieve([replace(search, query=self.rule(search), hops=()) for search in searches])
