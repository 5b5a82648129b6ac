"""Retrieval metrics of an episode. Every metric is None where it does not apply.

Metrics count documents: the first chunk of a document gives its rank. In a corpus without chunks, every passage is a
document.
"""

import math
from collections.abc import Sequence

from harr.types import Episode, document_of


def recall(episode: Episode) -> float | None:
    """Return the share of the gold documents retrieved at any step; None for a question without gold.

    >>> from harr.types import Episode, Passage, Question, Retrieval, Search, Step
    >>> question = Question("q", "Who?", gold_ids=("a", "b"))
    >>> step = Step(Search(question, "Who?"), Retrieval((Passage("x", ""), Passage("b", ""))))
    >>> episode = Episode(question, (step,))
    >>> recall(episode), all_gold(episode), reciprocal_rank(episode), hop_recall(episode, 1)
    (0.5, 0.0, 0.5, 0.0)
    """
    return recall_at(episode, None)


def all_gold(episode: Episode) -> float | None:
    """Return 1.0 if every gold document was retrieved, else 0.0; None for a question without gold."""
    share = recall(episode)
    return None if share is None else float(share == 1.0)


def gold_f1(episode: Episode) -> float | None:
    """Return F1 of the retrieved documents against the gold: extra picks cost precision (fact F1 of Q-RAG).

    >>> from harr.types import Passage, Question, Retrieval, Search, Step
    >>> question = Question("q", "Who?", gold_ids=("a", "b"))
    >>> step = Step(Search(question, "Who?"), Retrieval((Passage("b", ""), Passage("a", ""), Passage("x", ""))))
    >>> gold_f1(Episode(question, (step,)))
    0.8
    """
    gold, retrieved = set(episode.question.gold_documents), set(episode.documents)
    return 2.0 * len(gold & retrieved) / (len(gold) + len(retrieved)) if gold else None


def recall_at(episode: Episode, k: int | None) -> float | None:
    """Return the share of the gold among the first ``k`` retrieved (None: all); None for a question without gold.

    The order is that of :attr:`Episode.documents`. Gold beyond ``k`` lowers the ceiling: with four
    gold passages recall at 2 is at most .5, as in the papers that report R@2 and R@5.
    """
    gold = set(episode.question.gold_documents)
    return len(gold.intersection(episode.documents[:k])) / len(gold) if gold else None


def success_at(episode: Episode, k: int) -> float | None:
    """Return 1.0 if a gold document is among the first ``k``, else 0.0; None for a question without gold."""
    share = recall_at(episode, k)
    return None if share is None else float(share > 0.0)


def reciprocal_rank(episode: Episode) -> float | None:
    """Return 1 over the rank of the first gold document, 0.0 if none was retrieved; None for a question without gold.

    Its mean over questions is the mean reciprocal rank (MRR).
    """
    gold = set(episode.question.gold_documents)
    return _reciprocal(gold, episode.documents) if gold else None


def best_reciprocal_rank(episode: Episode) -> float | None:
    """Return the best reciprocal rank of a gold document within any one search; 0.0 without one.

    As a reward it ignores which search of an episode finds the gold; None for a question without gold.

    >>> from harr.types import Passage, Question, Retrieval, Search, Step
    >>> question = Question("q", "Who?", gold_ids=("d_chunk_0", "d_chunk_1"))
    >>> searches = ("a_chunk_1 a_chunk_2 b d_chunk_1", "c d_chunk_0")
    >>> found = [Retrieval(tuple(Passage(pid, "") for pid in ids.split())) for ids in searches]
    >>> episode = Episode(question, tuple(Step(Search(question, "Who?"), part) for part in found))
    >>> best_reciprocal_rank(episode)
    0.5
    """
    gold = set(episode.question.gold_documents)
    if not gold:
        return None
    searches = [list(dict.fromkeys(p.document for p in step.retrieval.passages)) for step in episode.steps]
    return max((_reciprocal(gold, documents) for documents in searches), default=0.0)


def ndcg_at(episode: Episode, k: int) -> float | None:
    """Return the nDCG of the first ``k`` documents, in which a gold document gains its grade.

    After Jarvelin and Kekalainen (2002), as trec_eval and BEIR measure it. None for a question without gold. Missing
    places of a ranking that ends early gain nothing.

    >>> from harr.types import Passage, Question, Retrieval, Search, Step
    >>> question = Question("q", "Who?", gold_ids=("a", "b"), grades=(1, 2))
    >>> step = Step(Search(question, "Who?", k=3), Retrieval((Passage("a", ""), Passage("x", ""), Passage("b", ""))))
    >>> round(ndcg_at(Episode(question, (step,)), 3), 4)  # (1 + 2/2) / (2 + 1/log2(3))
    0.7602
    """
    grades = episode.question.gold_grades
    if not grades:
        return None
    ideal = _gain(sorted(grades.values(), reverse=True)[:k])
    return _gain([grades.get(name, 0) for name in episode.documents[:k]]) / ideal


def hop_recall(episode: Episode, hop: int) -> float | None:
    """Return 1.0 if the gold document of ``hop`` (from 1) was retrieved at any step; None without such a hop."""
    gold = episode.question.gold_documents
    if hop > len(gold):
        return None
    return float(gold[hop - 1] in episode.documents)


def pool_recall(episode: Episode, hop: int = 0) -> float | None:
    """Return the share of the gold documents that reached any search's candidate pool, or 1.0 or 0.0 for one ``hop``.

    No policy could have scored higher with these searches. None without gold or such a hop, and for a retriever
    without candidates.
    """
    pools = [step.retrieval.reached for step in episode.steps if step.retrieval.reached is not None]
    gold = episode.question.gold_documents
    if not pools or hop > len(gold) or not gold:
        return None
    reached = {document_of(pid) for pool in pools for pid in pool}
    return float(gold[hop - 1] in reached) if hop else len(reached.intersection(gold)) / len(gold)


def average_precision(ranked: Sequence[str], gold: Sequence[str]) -> float:
    """Return the mean precision at the ranks of the gold documents, missing ones counting 0 (LeReT, section 3.1).

    >>> round(average_precision(["a", "x", "b"], ["a", "b"]), 4), average_precision(["x"], ["a"])
    (0.8333, 0.0)
    """
    hits = [rank for rank, name in enumerate(ranked, 1) if name in gold]
    return sum(number / rank for number, rank in enumerate(hits, 1)) / len(gold)


def depth(episode: Episode) -> int:
    """Return the number of distinct passages requested: those retrieved, and those missing for lack of matches."""
    short = sum(max(0, step.search.k - len(step.retrieval.passages)) for step in episode.steps)
    return len(episode.retrieved) + short


def _reciprocal(gold: set[str], documents: "list[str] | tuple[str, ...]") -> float:
    ranks = (rank for rank, name in enumerate(documents, 1) if name in gold)
    return 1.0 / next(ranks, float("inf"))


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))
