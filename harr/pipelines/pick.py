"""Pick passages one after the other; no LLM is asked (the game of Q-RAG, arXiv 2511.07328)."""

from collections.abc import Generator
from typing import Any

from harr.types import Hop, Outcome, Question, Request, Search


def pick(question: Question, *, picks: int, depth: int = 0) -> Generator[Request, Any, Outcome]:
    """Choose ``picks`` passages, each seen by the next search; never the same one twice.

    The last pick asks for as many passages as a ranking of length ``depth`` still lacks, so that
    recall_at_5 can be read after two picks. Gold never ends an episode.

    >>> game = pick(Question("q", "Who?"), picks=2, depth=5)
    >>> next(game).k
    1
    """
    hops: tuple[Hop, ...] = ()
    taken: frozenset[str] = frozenset()
    for number in range(1, picks + 1):
        wanted = max(1, depth - len(taken)) if number == picks else 1
        retrieval = yield Search(question, question.text, hops, taken, k=wanted)
        hops += tuple(Hop("", passage.content) for passage in retrieval.passages)
        taken |= {passage.id for passage in retrieval.passages}
    return Outcome(hops=hops)
