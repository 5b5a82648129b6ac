"""The reward of a run: weighted terms of whole episodes and of their steps."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.errors import CorpusError, ParamsError
from harr.params.functions import function_of
from harr.params.reward import RELEVANCE, SEMANTIC, TERM_SHAPE, metric_name
from harr.rag.scoring.judge import grades, verdicts
from harr.rag.scoring.reranker import Score, relevances
from harr.rag.scoring.similarity import Encode, answer_similarities
from harr.rag.scoring.terms import STEP_TERMS, TERMS, prefix_gains
from harr.types import Episode, Generator, Value

SIMILARITY = "answer_similarity"
JUDGED = {"judge": verdicts, SEMANTIC: grades}
"""Terms of a judging language model."""
BATCHED = (*JUDGED, SIMILARITY, RELEVANCE)
"""Terms that are computed for all episodes at once."""
Scores = Mapping[str, Sequence[Value]]
"""One value per episode, by the name of the term."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A weight that counts in training steps ``start`` <= step < ``end``; without ``end``, to the last one."""

    weight: float
    start: int = 0
    end: int | None = None

    def counts(self, step: int | None) -> bool:
        """Return whether the weight counts at a training step; None: at the end of training."""
        return self.end is None if step is None else self.start <= step and (self.end is None or step < self.end)


class Reward:
    """A weighted sum of named terms.

    A term is a name in ``TERMS`` or ``STEP_TERMS``, ``judge`` (a language model decides whether the answer is correct),
    ``semantic`` (how correct it is, 0 to 1; 0 for an invalid search graph), ``answer_similarity`` (cosine with the gold
    answers by ``encode``), ``relevance`` (per step, a reranker's score of its passages: ``rerank``), or your own
    function as ``package.module:function``: ``Episode -> float | None``. Without a judge ``semantic`` is answer F1, and
    its values are called ``semantic_f1``.

    >>> from harr.types import Outcome, Question
    >>> reward = Reward({"answer_f1": 1.0, "recall": 0.5})
    >>> reward(Episode(Question("q", "Who?", answers=("Ada",)), (), Outcome("Ada Brown")))  # 1.5 * F1 2/3
    1.0

    A weight is a number, or has ``weight``, and ``start`` and ``end``, the training steps in which it counts, or is a
    list of these in sequence. ``mix`` and ``filter_by_mean`` say how a method with groups combines the terms into one
    reward (``harr/rag/scoring/scalarize.py``); totals are always weighted sums.

    Raises:
        ParamsError: an unknown term, or a function that cannot be loaded.
    """

    def __init__(
        self,
        terms: Mapping[str, Any],
        judge: Generator | None = None,
        encode: Encode | None = None,
        rerank: Score | None = None,
        *,
        mix: str = "weighted",
        filter_by_mean: bool = False,
    ) -> None:
        by_name = {metric_name(name, judged=judge is not None): _schedules(weight) for name, weight in terms.items()}
        self._judge, self._unreadable, self._rerank = judge, 0, rerank
        self._encode, self.mix, self.filter_by_mean = encode, mix, filter_by_mean
        self._schedules = {name: live for name, parts in by_name.items() if (live := [p for p in parts if p.weight])}
        self._terms = {name: _term(name) for name in self._schedules if name not in BATCHED}

    def __call__(self, episode: Episode) -> float:
        """Return the reward of one episode, as at the end of training."""
        return self.totals(self.score([episode]))[0]

    def score(self, episodes: Sequence[Episode]) -> dict[str, list[Value]]:
        """Return all terms of all episodes, with one batch for the judge and one for the encoder."""
        scores: dict[str, list[Value]] = {
            name: [term(episode) for episode in episodes] for name, term in self._terms.items()
        }
        for name, judged in JUDGED.items():
            if name in self._schedules and self._judge:
                scores[name], unread = judged(self._judge, episodes)
                self._unreadable += unread
        if SIMILARITY in self._schedules and self._encode:
            scores[SIMILARITY] = answer_similarities(self._encode, episodes)
        if RELEVANCE in self._schedules and self._rerank:
            scores[RELEVANCE] = relevances(self._rerank, episodes)
        return scores

    def means(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        """Return each episode's applicable terms, and ``reward``, their total as at the end of training.

        A per-step term enters with its mean. If no term applies, there is no ``reward`` either.
        """
        rows, weights = _rows(self.score(episodes)), self.weights()
        return [row if (total := _total(row, weights)) is None else row | {"reward": total} for row in rows]

    def usage(self) -> dict[str, float]:
        """Return the judge's usage and the number of its unreadable verdicts; {} without a judge."""
        counts = self._judge.usage() if self._judge else {}
        return {**counts, "unreadable verdicts": float(self._unreadable)} if counts else {}

    def phase(self, step: int) -> int:
        """Return how often the current weights have changed up to a training step."""
        edges = {
            edge for parts in self._schedules.values() for part in parts for edge in (part.start, part.end) if edge
        }
        return sum(edge <= step and self.weights(edge) != self.weights(edge - 1) for edge in edges)

    def weights(self, step: int | None = None) -> dict[str, float]:
        """Return the weights that count at a training step; None: at the end of training."""
        current = {name: part.weight for name, parts in self._schedules.items() for part in parts if part.counts(step)}
        return current or {name: parts[-1].weight for name, parts in self._schedules.items()}

    def totals(self, scores: Scores, step: int | None = None) -> list[float]:
        """Return the weighted sum per episode; a per-step term enters with its mean.

        If a term does not apply, the weights of the others grow so that their absolute sum stays the same: rewards of
        all questions share one scale. Only ``semantic`` counts as 0 instead, so an answer gains nothing by confusing
        the judge.

        Raises:
            CorpusError: no term applies to an episode.
        """
        totals = self.totals_or_none(scores, step)
        if None in totals:
            raise CorpusError(
                f"no reward term applies to a question ({', '.join(self.weights(step))}): it lacks gold answers or "
                "gold passages; drop it or add a term to reward.terms"
            )
        return [total for total in totals if total is not None]

    def totals_or_none(self, scores: Scores, step: int | None = None) -> list[float | None]:
        """Return the totals of :meth:`totals`; None for an episode to which no term applies."""
        weights = self.weights(step)
        return [_total(row, weights) for row in _rows({name: scores[name] for name in weights})]

    def table(self, scores: Scores, step: int, group_size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the arguments of ``scalarize.combine``: the terms that count at a step, (B, G, K), and K weights.

        A per-step term enters with its mean; one that does not apply is NaN, except ``semantic``, which is 0 as in
        :meth:`totals`.
        """
        weights, nan = self.weights(step), float("nan")
        columns = [
            [(0.0 if name == SEMANTIC else nan) if value is None else mean_of(value) for value in scores[name]]
            for name in weights
        ]
        return np.array(columns).T.reshape(-1, group_size, len(weights)), np.array(list(weights.values()))

    def parts(
        self, scores: Scores, episodes: Sequence[Episode], step: int, *, by_step: bool
    ) -> Iterator[tuple[float, Sequence[Value]]]:
        """Yield (weight, one value per episode) for every term that counts at a step.

        With ``by_step`` a term of the whole episode becomes the gain of each step.
        """
        for name, weight in self.weights(step).items():
            term, values = self._terms.get(name), scores[name]
            if by_step and term and name not in STEP_TERMS:
                values = [prefix_gains(term, episode) for episode in episodes]
            yield weight, values


def _schedules(weight: Any) -> list[Schedule]:
    """Return a number, a weight with its steps, or several of these, as schedules in order."""
    if isinstance(weight, int | float):
        return [Schedule(weight)]
    parts = weight if isinstance(weight, Sequence) else (weight,)
    return sorted((Schedule(one.weight, one.start, one.end) for one in parts), key=lambda part: part.start)


def _rows(scores: Scores) -> list[dict[str, float]]:
    """Return the terms that apply, for each episode."""
    return [
        {name: mean_of(value) for name, value in zip(scores, values, strict=True) if value is not None}
        for values in zip(*scores.values(), strict=True)
    ]


def _total(row: Mapping[str, float], weights: Mapping[str, float]) -> float | None:
    """Return the weighted sum of the terms in a row; weights grow for missing terms. None if all are missing."""
    row = {SEMANTIC: 0.0, **row} if SEMANTIC in weights else row
    applying = {name: weight for name, weight in weights.items() if name in row}
    if not applying:
        return 0.0 if "judge" in weights else None  # its verdict was unreadable, which was counted
    factor = sum(map(abs, weights.values())) / sum(map(abs, applying.values()))
    return factor * sum(row[name] * weight for name, weight in applying.items())


def mean_of(value: float | list[float]) -> float:
    """Return a reward of the whole episode, or the mean of per-step rewards (0.0 without steps)."""
    return value if not isinstance(value, list) else sum(value) / max(1, len(value))


def _term(name: str) -> Callable[[Episode], Any]:
    """Return a term by its name or dotted path."""
    terms: dict[str, Callable[[Episode], Any]] = {**TERMS, **STEP_TERMS}
    if name in terms:
        return terms[name]
    if ":" not in name:
        names = ", ".join([*terms, *BATCHED])
        raise ParamsError(f"reward.terms: unknown term {name}; known: {names}, or package.module:function")
    term = function_of(name, key="reward.terms", shape=TERM_SHAPE)

    def check_value(episode: Episode) -> Value:
        value: Value = term(episode)
        numbers = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(number, Real) and math.isfinite(number) for number in numbers):
            raise ParamsError(f"reward.terms: {name} returned {value!r}; give one that {TERM_SHAPE}")
        return value

    return check_value
