"""What every adapter does: search with the caller's history, since frameworks pass on only the query."""

from collections.abc import Iterable, Sequence

from harr.builders.trained import TrainedRetriever
from harr.types import Retrieval

Hops = Iterable[Sequence[str]]
"""Earlier searches, in order: pairs of a sub-query and its answer, "" if its passages had none."""


def ask(retriever: TrainedRetriever, query: str, question: str = "", hops: Hops = (), k: int = 0) -> Retrieval:
    """Return what a retriever finds for a query, given the ``question`` and the ``hops`` before it.

    ``k``: number of passages, 0 for as many as in training. Without a question the query is the question.
    """
    session = retriever.session(question or query)
    for sub_query, answer in hops:
        session.asking(sub_query)
        session.learned(answer)
    return retriever.retrieve([session.asking(query, k=k)])[0]
