"""Pick passages one by one; a language model may read them at the end (the game of Q-RAG, arXiv 2511.07328)."""

from collections.abc import Generator, Sequence
from typing import Any

from harr.rag.pipelines.replies import passages_text, prompt, short_answer
from harr.types import Generate, Hop, Outcome, Passage, Question, Request, Search


def pick(question: Question, *, picks: int, depth: int = 0, reader: bool = False) -> Generator[Request, Any, Outcome]:
    """Choose ``picks`` passages, each seen by the next search; never the same one twice.

    The last pick asks for as many passages as a ranking of length ``depth`` still lacks, so that recall_at_5 can be
    read after two picks. Finding gold never ends an episode. A ``reader`` sees the picks, those of the question's own
    document in its order, and answers; without a reader there is no answer.

    >>> game = pick(Question("q", "Who?"), picks=2, depth=5)
    >>> next(game).k
    1
    """
    hops: tuple[Hop, ...] = ()
    picked_ids: frozenset[str] = frozenset()
    picked: tuple[Passage, ...] = ()
    for number in range(1, picks + 1):
        count = max(1, depth - len(picked_ids)) if number == picks else 1
        retrieval = yield Search(question, question.text, hops, picked_ids, k=count)
        if not retrieval.passages:  # no candidate is left
            break
        hops += tuple(Hop("", passage.content) for passage in retrieval.passages)
        picked_ids |= {passage.id for passage in retrieval.passages}
        picked += retrieval.passages
    if not reader:
        return Outcome(hops=hops)
    place = {name: number for number, name in enumerate(question.candidate_ids)}
    request, escaped = reading_request(question, sorted(picked, key=lambda passage: place.get(passage.id, 0)))
    reply: str = yield request
    return Outcome(short_answer(reply), hops, escaped=escaped)


def reading_request(question: Question, passages: Sequence[Passage]) -> tuple[Generate, int]:
    """Return the reader's request, and how many control tags were escaped in the passages."""
    text, escaped = passages_text(passages)
    return prompt("pick", question, (), passages=text), escaped
