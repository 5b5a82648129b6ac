"""Validation: questions that are played between training steps and never learnt from.

They are played as stage evaluate plays ``trained``: greedily, with the current weights. The results are part of the
step's row, so a resumed run has every point once.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

from harr.compute import distributed
from harr.rag.rollout import play
from harr.rag.scoring.ranking import all_gold, ndcg_at, recall
from harr.rag.scoring.reward import Reward
from harr.rag.scoring.terms import answer_em, answer_f1
from harr.rag.setup import Setup
from harr.types import Episode, Generator, Log, Retriever

BEFORE, AFTER = "validation_before", "validation"
"""Keys in a step's row of the results before it (first step only) and after it."""
ANSWERS = {"answer_f1": answer_f1, "answer_em": answer_em}
METRICS: dict[str, Callable[[Episode], float | None]] = {
    "ndcg_at_10": partial(ndcg_at, k=10),
    "all_gold": all_gold,
    "recall": recall,
}
LEADING = (*(name for name in ANSWERS if name != "answer_em"), *METRICS, "reward")
"""Metrics by which the best step is chosen: the first one measured, as in the tables of evaluation."""


@dataclass
class Validation:
    """Plays the validation questions of a run every ``every`` steps; ``generator`` writes the text.

    ``offset`` is the number of steps of earlier phases of the run.
    """

    setup: Setup
    every: int
    log: Log
    generator: Generator | None
    offset: int = 0
    _before: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, every: int, setup: Setup, log: Log, generator: Generator | None = None) -> "Validation | None":
        """Return a validation every ``every`` steps; None if that is 0 or there is no validation question."""
        return cls(setup, every, log, generator or setup.generator) if every and setup.validation else None

    def begin(self) -> None:
        """Play before the first step of the run, and store the results for its row."""
        if not self.offset:
            self._before = self._validate(0)

    def enter(self, row: dict[str, Any], *, last: bool) -> None:
        """Play after the step of ``row``, if it is due or the ``last``, and write the results into the row."""
        done = int(row["step"]) + 1
        if self._before:
            row[BEFORE], self._before = self._before, {}
        if last or done % self.every == 0:
            row[AFTER] = self._validate(done)

    def _validate(self, done: int) -> dict[str, float]:
        """Return the means over all questions, the number of questions, and the seconds."""
        began, setup = time.perf_counter(), self.setup
        pipeline = setup.validation_pipeline or setup.pipeline
        episodes = play(setup.validation, pipeline, make_greedy(setup.retriever), self.generator)
        run_facts = {"questions": float(len(episodes)), "seconds": time.perf_counter() - began}
        values = figures(episodes, setup.reward) | run_facts
        if distributed.is_main():
            self.log(self.offset + done, {f"validation.{name}": value for name, value in values.items()})
        return values


def make_greedy(retriever: Retriever) -> Retriever:
    """Return a learning retriever in greedy form, with the same weights; any other unchanged."""
    result: Retriever = retriever.greedy() if hasattr(retriever, "greedy") else retriever
    return result


def figures(episodes: Sequence[Episode], reward: Reward) -> dict[str, float]:
    """Return the mean of every metric over the episodes to which it applies, and the mean reward.

    As in evaluation, answers are scored if the pipeline gives any, or a reply was malformed.
    """
    answering = any(episode.answer is not None or episode.outcome.malformed for episode in episodes)
    metrics = (ANSWERS if answering else {}) | METRICS
    columns = {name: [metric(episode) for episode in episodes] for name, metric in metrics.items()}
    columns["reward"] = [row.get("reward") for row in reward.means(episodes)]
    values_of = {name: [value for value in values if value is not None] for name, values in columns.items()}
    return {name: fmean(values) for name, values in values_of.items() if values}


def points(history: Iterable[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return the results in order, each with the ``step`` after which it was played (0: before the first).

    >>> points([{"step": 0, "validation_before": {"recall": 0.4}}, {"step": 1, "validation": {"recall": 0.5}}])
    [{'step': 0, 'recall': 0.4}, {'step': 2, 'recall': 0.5}]
    """
    rows = list(history)
    before = [{"step": row["step"], **row[BEFORE]} for row in rows if BEFORE in row]
    return before + [{"step": row["step"] + 1, **row[AFTER]} for row in rows if AFTER in row]


def leading_metric(metrics: Mapping[str, float]) -> str:
    """Return the metric by which points are compared.

    >>> leading_metric({"recall": 0.5, "answer_em": 0.2, "answer_f1": 0.3})
    'answer_f1'
    """
    return next(name for name in LEADING if name in metrics)


def best_point(history: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the best point after a step, the highest in the leading metric, the latest of equals; {} without any.

    Steps of a warm start (``phase`` below 0) do not count: its weights are a separate arm.

    >>> rows = [{"step": step, "validation": {"recall": value}} for step, value in enumerate((0.4, 0.6, 0.5))]
    >>> best_point(rows), best_point([])
    ({'step': 2, 'recall': 0.6}, {})
    >>> best_point([{"step": 0, "phase": -1.0, "validation": {"recall": 0.9}}, *rows])["recall"]
    0.6
    """
    after = [point for point in points(row for row in history if row.get("phase", 0.0) >= 0.0) if point["step"]]
    return max(after, key=lambda point: (point[leading_metric(after[0])], point["step"]), default={})


def checkpoint_facts(point: Mapping[str, float]) -> dict[str, Any]:
    """Return the facts in harr.json about weights that validation chose.

    >>> checkpoint_facts({"step": 20, "recall": 0.6, "questions": 100.0, "seconds": 3.0})
    {'kept_step': 20, 'kept_by': 'recall', 'kept_value': 0.6, 'kept_questions': 100}
    """
    metric = leading_metric(point)
    facts = {"step": int(point["step"]), "by": metric, "value": point[metric], "questions": int(point["questions"])}
    return {f"kept_{name}": value for name, value in facts.items()}
