"""Rows, means and paired gains: what the episodes of every arm become, with intervals."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harr.errors import CorpusError
from harr.evaluate.audits import answer_in_query, repeated_queries, writes_queries
from harr.evaluate.intervals import mean_interval, paired_gain
from harr.rag.scoring.ranking import all_gold, gold_f1, hop_recall, ndcg_at, recall, recall_at, reciprocal_rank
from harr.rag.scoring.terms import answer_em, answer_f1, context_words
from harr.types import Episode

Row = dict[str, Any]
Summary = dict[str, dict[str, dict[str, Any]]]

NOT_METRICS = ("id", "question", "answer", "gold_answers")
HEADLINES = ("answer_f1", "ndcg_at_10", "all_gold", "recall", "given_answer_f1", "given_all_gold", "given_recall")
"""The metric that leads a table or sentence: the first of these that was measured."""


def question_rows(
    episodes: Sequence[Episode], terms: Sequence[Mapping[str, float]] = (), *, picking: bool = False
) -> list[Row]:
    """Return one flat row per question: id, question, answer, gold_answers and every metric that applies.

    A metric that does not apply to a question is absent from its row. Answers are scored where the
    question has gold answers; if no episode has an answer and no reply was malformed, the pipeline
    gives none by design and none is scored. Otherwise a missing answer scores 0. ``terms``: what the
    run's own reward says of each episode; a metric of the same name is kept as it is. ``picking``: passages
    are picked one by one, so that fact_em and fact_f1 say how well. Queries are audited where any is written; where
    states tell a history, the shares of it that their limit cut and dropped.
    """
    answering = any(episode.answer is not None or episode.outcome.malformed for episode in episodes)
    writing = writes_queries(episodes)
    rows = [_row(episode, answering, picking, writing) for episode in episodes]
    if any(step.retrieval.shortened.hops for episode in episodes for step in episode.steps):
        rows = [row | _shortened(episode) for row, episode in zip(rows, episodes, strict=True)]
    for row, own in zip(rows, terms, strict=bool(terms)):
        row.update({name: value for name, value in own.items() if name not in row})
    return rows


def _row(episode: Episode, answering: bool, picking: bool, writing: bool) -> Row:
    question = episode.question
    metrics: dict[str, float | None] = {
        "answer_em": answer_em(episode) if answering else None,
        "answer_f1": answer_f1(episode) if answering else None,
        "fact_em": all_gold(episode) if picking else None,
        "fact_f1": gold_f1(episode) if picking else None,
        "recall": recall(episode),
        "all_gold": all_gold(episode),
        "recall_at_2": recall_at(episode, 2),
        "recall_at_5": recall_at(episode, 5),
        "recall_at_10": recall_at(episode, 10),
        "ndcg_at_10": ndcg_at(episode, 10),
        "reciprocal_rank": reciprocal_rank(episode),
        **{f"hop_recall_{hop}": hop_recall(episode, hop) for hop in range(1, len(question.gold_documents) + 1)},
        "searches": float(len(episode.steps)),
        "context_words": float(context_words(episode)),
        "malformed": float(episode.outcome.malformed),
        "repeated_queries": repeated_queries(episode) if writing else None,
        "answer_in_query": answer_in_query(episode) if writing else None,
    }
    texts = {"id": question.id, "question": question.text, "answer": episode.answer}
    measured = {name: value for name, value in metrics.items() if value is not None}
    return texts | {"gold_answers": list(question.answers)} | measured


def _shortened(episode: Episode) -> Row:
    """Return the shares of the history that states lack, and of states that lack a part of the question."""
    lost = [step.retrieval.shortened for step in episode.steps]
    hops = max(1, sum(own.hops for own in lost))
    return {
        "hops_cut": sum(own.cut for own in lost) / hops,
        "hops_dropped": sum(own.dropped for own in lost) / hops,
        "question_cut": sum(own.question or own.query for own in lost) / max(1, len(lost)),
    }


def join_candidates(rows_by_candidates: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Merge the rows of ``corpus`` and ``question`` search per question id.

    Metrics of ``question`` (only the given passages were searched) get the prefix ``given_`` beside those of
    ``corpus``; the answer shown is that of the first kind listed.

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


def _metrics(rows: Iterable[Row]) -> list[str]:
    """Return the names of all metrics in the rows; the longest row leads, so that hops stay in order."""
    ordered = sorted(rows, key=len, reverse=True)
    return list(dict.fromkeys(key for row in ordered for key in row if key not in NOT_METRICS))


def average_seeds(by_seed: Sequence[Sequence[Row]]) -> list[Row]:
    """Return one row per question: the mean of every metric that all seeds have; texts are those of the first seed.

    >>> average_seeds([[{"id": "q", "recall": 1.0}], [{"id": "q", "recall": 0.0}]])
    [{'id': 'q', 'recall': 0.5}]
    """
    averaged: list[Row] = []
    for rows in zip(*by_seed, strict=True):
        names = [name for name in rows[0] if name not in NOT_METRICS and all(name in row for row in rows)]
        texts = {name: rows[0][name] for name in NOT_METRICS if name in rows[0]}
        averaged.append(texts | {name: sum(row[name] for row in rows) / len(rows) for name in names})
    return averaged


def seed_means(by_seed: Sequence[Sequence[Row]]) -> dict[str, list[float]]:
    """Return the mean of every metric, one value per seed.

    >>> seed_means([[{"id": "q", "recall": 1.0}], [{"id": "q", "recall": 0.0}]])
    {'recall': [1.0, 0.0]}
    """
    names = _metrics(by_seed[0])
    return {
        name: [statistics.fmean(row[name] for row in rows if name in row) for rows in by_seed]
        for name in names
        if all(any(name in row for row in rows) for rows in by_seed)
    }


def summarise(
    rows_by_arm: Mapping[str, Sequence[Row]], *, baseline: str = "frozen", resamples: int, seed: int
) -> Summary:
    """Return the means of every arm and paired gains over ``baseline``, all with bootstrap 95 % intervals.

    Returns:
        ``{"arms": {arm: {metric: {mean, low, high, n}}}, "paired": {arm: {metric: {gain, low, high,
        p}}}}``; ``paired`` is empty where the baseline is not among the arms.
    """
    arms = {
        arm: {
            name: mean_interval([row[name] for row in rows if name in row], resamples=resamples, seed=seed)
            for name in _metrics(rows)
        }
        for arm, rows in rows_by_arm.items()
    }
    others = [arm for arm in rows_by_arm if arm != baseline and baseline in rows_by_arm]
    gains = {arm: contrast(rows_by_arm[arm], rows_by_arm[baseline], resamples=resamples, seed=seed) for arm in others}
    paired = {
        arm: {name: {key: gain[key] for key in ("gain", "low", "high", "p")} for name, gain in metrics.items()}
        for arm, metrics in gains.items()
    }
    return {"arms": arms, "paired": paired}


def contrast(rows_a: Sequence[Row], rows_b: Sequence[Row], *, resamples: int, seed: int) -> dict[str, dict[str, float]]:
    """Return the gain of ``a`` over ``b`` per metric, paired by question id: ``{metric: {gain, low, high, p, n}}``.

    Only questions on which both have the metric count; a metric without such a question is absent.
    """
    theirs = {row["id"]: row for row in rows_b}
    pairs = [(row, theirs[row["id"]]) for row in rows_a if row["id"] in theirs]
    gains: dict[str, dict[str, float]] = {}
    for name in _metrics(rows_a):
        values = [(a[name], b[name]) for a, b in pairs if name in a and name in b]
        if values:
            ours, others = zip(*values, strict=True)
            gains[name] = paired_gain(ours, others, resamples=resamples, seed=seed)
    return gains


def flat_rows(summary: Summary) -> list[Row]:
    """Return the arms of a summary as rows ``{arm, metric, mean, low, high, n}`` for a plot or a CSV file."""
    arms = summary["arms"].items()
    return [{"arm": arm, "metric": name, **values} for arm, metrics in arms for name, values in metrics.items()]


def headline(summary: Summary) -> str:
    """Return the metric that leads: the first of HEADLINES that any arm has.

    Raises:
        CorpusError: nothing could be scored.
    """
    measured = {name for metrics in summary["arms"].values() for name in metrics}
    if not measured.intersection(HEADLINES):
        raise CorpusError("no question has a gold answer or a gold passage, so no arm can be scored; add them")
    return next(name for name in HEADLINES if name in measured)


def baseline_of(summary: Summary) -> str:
    """Return the arm that the others are compared with; "" where there is none.

    >>> baseline_of({"arms": {"frozen": {}, "full": {}}, "paired": {"full": {}}})
    'frozen'
    """
    return next((arm for arm in summary["arms"] if arm not in summary["paired"]), "") if summary["paired"] else ""
