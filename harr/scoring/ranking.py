"""How much of the gold an episode retrieved. Every measure is None where it does not apply."""

from harr.types import Episode


def recall(episode: Episode) -> float | None:
    """Share of the gold passages retrieved at any step; None for a question without gold.

    >>> from harr.types import Episode, Passage, Question, Retrieval, Search, Step
    >>> question = Question("q", "Who?", gold_ids=("a", "b"))
    >>> step = Step(Search(question, "Who?"), Retrieval((Passage("x", ""), Passage("b", ""))))
    >>> episode = Episode(question, (step,))
    >>> recall(episode), all_gold(episode), reciprocal_rank(episode), hop_recall(episode, 1)
    (0.5, 0.0, 0.5, 0.0)
    """
    return recall_at(episode, None)


def all_gold(episode: Episode) -> float | None:
    """1.0 if every gold passage was retrieved, else 0.0; None for a question without gold."""
    share = recall(episode)
    return None if share is None else float(share == 1.0)


def gold_f1(episode: Episode) -> float | None:
    """F1 of the retrieved passages against the gold: picks too many cost precision (fact F1 of Q-RAG).

    >>> from harr.types import Passage, Question, Retrieval, Search, Step
    >>> question = Question("q", "Who?", gold_ids=("a", "b"))
    >>> step = Step(Search(question, "Who?"), Retrieval((Passage("b", ""), Passage("a", ""), Passage("x", ""))))
    >>> gold_f1(Episode(question, (step,)))
    0.8
    """
    gold, found = set(episode.question.gold_ids), {passage.id for passage in episode.retrieved}
    return 2.0 * len(gold & found) / (len(gold) + len(found)) if gold else None


def recall_at(episode: Episode, k: int | None) -> float | None:
    """Share of the gold among the first ``k`` retrieved; None if fewer than ``k`` were retrieved.

    The order is that of :attr:`Episode.retrieved`. Gold beyond ``k`` lowers the ceiling: with four
    gold passages recall at 2 is at most .5, as in the papers that report R@2 and R@5.
    """
    gold = set(episode.question.gold_ids)
    found = [passage.id for passage in episode.retrieved]
    if not gold or (k is not None and len(found) < k):
        return None
    return len(gold.intersection(found[:k])) / len(gold)


def reciprocal_rank(episode: Episode) -> float | None:
    """1 over the rank of the first gold passage, 0.0 if none came; None for a question without gold."""
    gold = set(episode.question.gold_ids)
    if not gold:
        return None
    ranks = (rank for rank, passage in enumerate(episode.retrieved, 1) if passage.id in gold)
    return 1.0 / next(ranks, float("inf"))


def hop_recall(episode: Episode, hop: int) -> float | None:
    """1.0 if the gold passage of ``hop`` (from 1) was retrieved at any step; None without such a hop."""
    gold = episode.question.gold_ids
    if hop > len(gold):
        return None
    return float(any(passage.id == gold[hop - 1] for passage in episode.retrieved))
