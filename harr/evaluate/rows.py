"""Question rows: the metrics of each of an arm's episodes."""

from collections.abc import Mapping, Sequence
from typing import Any

from harr.evaluate.queries import answer_in_query, repeated_queries, writes_queries
from harr.rag.scoring.ranking import (
    all_gold,
    depth,
    gold_f1,
    hop_recall,
    ndcg_at,
    pool_recall,
    recall,
    recall_at,
    reciprocal_rank,
    success_at,
)
from harr.rag.scoring.terms import answer_em, answer_f1, context_words
from harr.types import Episode

Row = dict[str, Any]

NOT_METRICS = ("id", "question", "answer", "gold_answers", "gold", "ranked", "scores", "kind", "setting")
NDCG_DEPTH, SUCCESS_DEPTH = 10, 5


def question_rows(
    episodes: Sequence[Episode], terms: Sequence[Mapping[str, float]] = (), *, picking: bool = False
) -> list[Row]:
    """Return one flat row per question: id, question, answer, gold_answers; if there are any, its gold documents,
    those retrieved (``ranked``) and their ``scores``, kind and setting; and every metric that applies.

    Answers are scored if the question has gold answers; if no episode has an answer and no reply was malformed, the
    pipeline gives none by design and none is scored. Otherwise a missing answer scores 0. ``terms``: the values of
    the run's own reward for each episode; a metric of the same name takes precedence. ``picking``: passages
    are picked one by one, which fact_em and fact_f1 measure. Recall and success at k are measured for all questions
    if any of them retrieved that many passages; nDCG at k, which rates a ranking, only if all did. Queries are audited
    if any is written.
    """
    answering = any(episode.answer is not None or episode.outcome.malformed for episode in episodes)
    writing, depths = writes_queries(episodes), [depth(episode) for episode in episodes]
    ks = [k for k in (2, 5, 10) if k <= max(depths, default=0)]
    ranking = min(depths, default=0) >= NDCG_DEPTH
    rows = [_row(episode, ks, answering, picking, writing, ranking) for episode in episodes]
    for row, own in zip(rows, terms, strict=bool(terms)):
        row.update({name: value for name, value in own.items() if name not in row})
    return rows


def _row(episode: Episode, ks: Sequence[int], answering: bool, picking: bool, writing: bool, ranking: bool) -> Row:
    question = episode.question
    metrics: dict[str, float | None] = {
        "answer_em": answer_em(episode) if answering else None,
        "answer_f1": answer_f1(episode) if answering else None,
        "fact_em": all_gold(episode) if picking else None,
        "fact_f1": gold_f1(episode) if picking else None,
        "recall": recall(episode),
        "all_gold": all_gold(episode),
        **{f"recall_at_{k}": recall_at(episode, k) for k in ks},
        f"success_at_{SUCCESS_DEPTH}": success_at(episode, SUCCESS_DEPTH) if SUCCESS_DEPTH in ks else None,
        f"ndcg_at_{NDCG_DEPTH}": ndcg_at(episode, NDCG_DEPTH) if ranking else None,
        "reciprocal_rank": reciprocal_rank(episode),
        **{f"hop_recall_{hop}": hop_recall(episode, hop) for hop in range(1, len(question.gold_documents) + 1)},
        "pool_recall": pool_recall(episode),
        **{f"pool_recall_{hop}": pool_recall(episode, hop) for hop in range(1, len(question.gold_documents) + 1)},
        "searches": float(len(episode.steps)),
        "context_words": float(context_words(episode)),
        "malformed": float(episode.outcome.malformed),
        "repeated_queries": repeated_queries(episode) if writing else None,
        "answer_in_query": answer_in_query(episode) if writing else None,
    }
    texts = {"id": question.id, "question": question.text, "answer": episode.answer}
    facts = {
        "gold": list(question.gold_documents),
        "ranked": list(episode.documents),
        "scores": _scores(episode),
        "kind": question.kind,
        "setting": question.setting,
    }
    present = {name: fact for name, fact in facts.items() if fact}
    measured = {name: value for name, value in metrics.items() if value is not None}
    return texts | {"gold_answers": list(question.answers)} | present | measured


def _scores(episode: Episode) -> list[float]:
    """Return every document's score, that of its first passage; [] if a search has none."""
    by_document: dict[str, float] = {}
    for step in episode.steps:
        passages, scores = step.retrieval.passages, step.retrieval.scores
        if len(passages) != len(scores):
            return []
        for passage, score in zip(passages, scores, strict=True):
            by_document.setdefault(passage.document, round(score, 6))
    return list(by_document.values())


def join_candidates(rows_by_candidates: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Merge the rows from searching ``corpus`` and ``question`` per question id.

    Metrics of ``question`` (only the given passages were searched) get the prefix ``given_``, next to those of
    ``corpus``; the answer shown is that of the first one listed.

    >>> rows = {"corpus": [{"id": "q", "recall": 0.5}], "question": [{"id": "q", "recall": 1.0}]}
    >>> join_candidates(rows)
    [{'id': 'q', 'recall': 0.5, 'given_recall': 1.0}]
    """
    joined: dict[str, Row] = {}
    for candidates, rows in rows_by_candidates.items():
        prefix = "given_" if candidates == "question" and len(rows_by_candidates) > 1 else ""
        for row in rows:
            renamed = {key if key in NOT_METRICS else prefix + key: value for key, value in row.items()}
            joined[row["id"]] = renamed | joined.get(row["id"], {})
    # the question first, then plain metrics, then those with given passages
    return [
        dict(sorted(row.items(), key=lambda cell: (cell[0] not in NOT_METRICS, cell[0].startswith("given_"))))
        for row in joined.values()
    ]
