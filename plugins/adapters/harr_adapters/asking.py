"""What every adapter does: a search with the history that its caller gives, since frameworks pass on the query alone."""

from collections.abc import Iterable, Sequence

from harr.builders.trained import TrainedRetriever
from harr.types import Retrieval

Hops = Iterable[Sequence[str]]
"""Earlier searches, in order: pairs of a sub-query and what it taught, "" where its passages did not say."""


def ask(retriever: TrainedRetriever, query: str, question: str = "", hops: Hops = (), k: int = 0) -> Retrieval:
    """Return what a retriever finds for a query, given the ``question`` and the ``hops`` before it.

    ``k``: number of passages, 0 for as many as in training. Without a question the query is one.
    """
    session = retriever.session(question or query)
    for sub_query, answer in hops:
        session.asking(sub_query)
        session.learned(answer)
    return retriever.retrieve([session.asking(query, k=k)])[0]
