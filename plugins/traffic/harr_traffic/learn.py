"""Off-policy GRPO on logged rollouts, with clipped weights.

The choices are those that a served model drew (``explore`` of :class:`harr_traffic.log.Recording`), with their exact
log-probabilities. The ratio to them is clipped as in PPO (arXiv 1707.06347), so nothing is learnt where the log has no
support. First ranks that were kept (``explore_after``) are given, like the state; only the ranks after them are learnt.

``train: {method: function, function: "harr_traffic.learn:METHOD", learns: retriever}`` trains by it.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harr.builders.methods import Method
from harr.errors import CorpusError, ParamsError
from harr.params.faults import read_section
from harr.params.loop import LoopParams, StatesParams, UpdateParams
from harr.params.train import FunctionTrainParams, GRPOParams
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.state import reads
from harr.rag.setup import Setup
from harr.train import grpo
from harr.train.batch import Batch, draw_rows
from harr.train.learner import Learner
from harr.types import Episode, Log, Question, Retrieval, Search, Step
from harr_traffic.questions import Drawn, choices_of


class LoggedParams(StatesParams, UpdateParams):
    """Settings of an update (``train.settings``), as for train.method grpo."""


def train(
    section: FunctionTrainParams, setup: Setup, out: Path, work: Path, log: Log, seed: int
) -> list[dict[str, Any]]:
    """Train as :func:`harr.train.grpo.train`, but on the questions' logged choices, and write the adapter to ``out``.

    A step learns from ``questions_per_step`` x ``group_size`` choices, drawn in consecutive seeded permutations.

    Raises:
        CorpusError: no question has a choice. ParamsError: the choices were made in states that this model never reads.
    """
    loop = {name: getattr(section, name) for name in LoopParams.model_fields}
    params = read_section(GRPOParams, {"method": "grpo", **loop, **section.settings}, "settings of harr_traffic.learn")
    learner = Learner.open(params, setup, work, seed, kind="grpo by logged rollouts")
    episodes, scores = choices_in(setup.questions, learner.dense)
    gains = advantages([episode.question.id for episode in episodes], scores)
    count = params.questions_per_step * params.group_size
    for step in learner.steps(log):
        rows = list(draw_rows(range(len(episodes)), count, seed, step))
        columns = {"advantage": [gains[row] for row in rows], "weight": [1.0 / count] * count}
        batch = Batch.of([episodes[row] for row in rows], columns)
        rewards = np.array([scores[row] for row in rows])
        values = {"reward_mean": float(rewards.mean()), "reward_std": float(rewards.std()), "zero_std_share": 0.0}
        for _ in range(params.num_iterations):
            values |= grpo.update(params, learner, batch)
        learner.history.append(values | {"distinct_states": float(len(batch.states))})
    return learner.export(out)


METHOD = Method(train, settings=LoggedParams)


def choices_in(questions: Sequence[Question], policy: DensePolicy) -> tuple[list[Episode], list[float]]:
    """Return every logged choice as an episode of one search, and the scores."""
    found = [(question, choice) for question in questions for choice in choices_of(question)]
    if not found:
        raise CorpusError(
            "harr_traffic.learn learns from searches that explored and have outcomes, and no training question has one; "
            "log with explore=0.05, send outcomes, and set download.function: harr_traffic.questions:DATASET"
        )
    own = reads(policy.style, policy.history)
    if others := sorted({choice.reads for _, choice in found} - {own}):
        raise ParamsError(f"the log has states of {others[0]}, and the model reads {own}; set retriever.state")
    row_of = policy.passages.rows_of({name for _, choice in found for name in choice.pool})
    return [_episode(*one, row_of, policy) for one in found], [choice.score for _, choice in found]


def _episode(question: Question, choice: Drawn, row_of: dict[str, int], policy: DensePolicy) -> Episode:
    pool = tuple(row_of[name] for name in choice.pool)
    passages = tuple(policy.passages.take(pool[: choice.chosen]))
    retrieval = Retrieval(passages, state=choice.state, pool=pool, logprob=choice.logprob, kept=choice.kept)
    return Episode(question, (Step(Search(question, question.text), retrieval),))


def advantages(groups: Sequence[str], scores: Sequence[float]) -> list[float]:
    """Return how much better every choice did than others of its question, divided by the deviation of all scores.

    The baseline averages the others' scores and, as one more score, the mean of all: most questions are asked once.

    >>> [round(value, 2) for value in advantages(["a", "a", "b"], [1.0, 0.0, 1.0])]
    [1.41, -1.77, 0.71]
    """
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for group, score in zip(groups, scores, strict=True):
        sums[group] += score
        counts[group] += 1
    mean, spread = float(np.mean(scores)), float(np.std(scores)) or 1.0
    return [
        (score - (sums[group] - score + mean) / counts[group]) / spread
        for group, score in zip(groups, scores, strict=True)
    ]
