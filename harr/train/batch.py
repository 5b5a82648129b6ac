"""A step's episodes: the questions it draws, its rollouts, and its searches laid out as tensors."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harr.compute import distributed
from harr.params.loop import LoopParams
from harr.rag.policies.dense import unique
from harr.rag.retrieval.hybrid import pad, pad_tables
from harr.rag.rollout import play
from harr.rag.scoring.reward import Scores
from harr.rag.setup import Setup
from harr.train.record import term_figures
from harr.types import Episode

T = TypeVar("T")
StateFeatures = Mapping[str, Mapping[int, NDArray[np.float32]]]
"""State -> row of a candidate -> its features, (F,)."""


def rollouts(params: LoopParams, setup: Setup, seed: int, step: int) -> list[Episode]:
    """Play G sampled episodes of each of this step's questions, group by group."""
    batch = draw_rows(setup.questions, params.questions_per_step, seed, step)
    setup.policy.sampling = torch.Generator().manual_seed(seed * 1_000_003 + step)
    repeated = [question for question in batch for _ in range(params.group_size)]
    return play(repeated, setup.pipeline, setup.retriever, setup.generator)


@dataclass(frozen=True, slots=True)
class StepRollouts:
    """A training step's rollouts: its number, its episodes in groups, and their rewards.

    scores: by term. rewards: their totals. figures: those of :func:`reward_figures`.
    """

    step: int
    episodes: list[Episode]
    scores: Scores
    rewards: list[float]
    figures: dict[str, Any]


def play_step(params: LoopParams, setup: Setup, seed: int, step: int) -> StepRollouts:
    """Play a step's rollouts and reward them; ``play_seconds`` is the time for both."""
    began = time.perf_counter()
    episodes = rollouts(params, setup, seed, step)
    scores = setup.reward.score(episodes)
    rewards = setup.reward.totals(scores, step)
    figures = reward_figures(params, setup, scores, rewards, episodes, step)
    return StepRollouts(step, episodes, scores, rewards, {**figures, "play_seconds": time.perf_counter() - began})


def rate_share(params: LoopParams, step: float) -> float:
    """Return the share of the learning rate at a step: it rises over the warm-up, then falls to its final share.

    With ``decay`` even it falls from the first step on. Otherwise it falls after the warm-up: linearly, or, as in
    Q-RAG, along a quarter of a cosine, slowly at first.

    >>> rate_share(LoopParams(steps=10, optimizer={"warmup_steps": 1, "final_rate": 0.0}), 0)
    0.5
    >>> cosine = LoopParams(steps=10, optimizer={"warmup_steps": 4, "final_rate": 0.1, "decay": "cosine"})
    >>> [round(rate_share(cosine, step), 3) for step in (4, 7, 10)]
    [1.0, 0.736, 0.1]
    """
    optimizer, steps = params.optimizer, params.steps
    warm_up = min(1.0, (step + 1) / (optimizer.warmup_steps + 1))
    if optimizer.decay == "even":
        return warm_up * (1.0 - (1.0 - optimizer.final_rate) * step / steps)
    progress = max(0.0, step - optimizer.warmup_steps) / max(1, steps - optimizer.warmup_steps)
    remaining = math.cos(0.5 * math.pi * progress) if optimizer.decay == "cosine" else 1.0 - progress
    return warm_up * (optimizer.final_rate + (1.0 - optimizer.final_rate) * remaining)


def draw_rows(rows: Sequence[T], count: int, seed: int, step: int) -> Iterator[T]:
    """Yield a step's rows, such as questions, from consecutive epochs, each a seeded permutation.

    >>> sorted([*draw_rows("abcd", 2, seed=7, step=0), *draw_rows("abcd", 2, seed=7, step=1)])
    ['a', 'b', 'c', 'd']
    """
    first, end = step * count, (step + 1) * count
    for epoch in range(first // len(rows), -(-end // len(rows))):
        order, start = np.random.default_rng([seed, epoch]).permutation(len(rows)), epoch * len(rows)
        for place in order[max(0, first - start) : end - start]:
            yield rows[place]


def reward_figures(
    params: LoopParams,
    setup: Setup,
    scores: Scores,
    rewards: Sequence[float | None],
    episodes: Sequence[Episode],
    step: int,
) -> dict[str, Any]:
    """Return the figures of a step's rollouts, before any update.

    ``phase`` numbers periods of comparable rewards; ``faults`` counts the reasons why turns were ill-formed.
    ``rewards`` are the totals of ``scores``, whose terms have their own figures
    (:func:`harr.train.record.term_figures`). An episode without a reward counts as its group's mean; a group
    without any is left out.
    """
    groups = [rewards[first : first + params.group_size] for first in range(0, len(rewards), params.group_size)]
    valid = [[value for value in group if value is not None] for group in groups]
    filled = [
        [sum(values) / len(values) if value is None else value for value in group]
        for group, values in zip(groups, valid, strict=True)
        if values
    ]
    groups_BG = torch.tensor(filled or [[0.0] * params.group_size], dtype=torch.float32)
    std_B = groups_BG.std(-1) if params.group_size > 1 else torch.zeros(len(groups_BG))
    return {
        "phase": float(setup.reward.phase(step)),
        "reward_mean": float(groups_BG.mean()),
        "reward_std": float(std_B.mean()),
        "zero_std_share": float((std_B < 1e-6).float().mean()),
        "episodes_without_search": float(sum(not episode.steps for episode in episodes)),
        "malformed": float(sum(episode.outcome.malformed for episode in episodes)),
        "faults": dict(Counter(fault for episode in episodes for fault in episode.outcome.faults).most_common()),
        "escaped_tags": float(sum(episode.outcome.escaped for episode in episodes)),
        "searches": float(sum(len(episode.steps) for episode in episodes)),
        "episodes": float(len(episodes)),
        **term_figures(scores, rewards),
    }


@dataclass(frozen=True)
class Batch:
    """All searches of a step's episodes as tensors; rows are sorted by state.

    states: U distinct texts. state_of_B: the state of each row. pool_BN: candidate rows, chosen ones first, padded with
    -1. chosen_B: number of chosen candidates; kept_B: number of greedy ones among them. old_B: behaviour
    log-probabilities. columns: further values per row, by name. features_BNF: each candidate's features, or None.
    """

    states: list[str]
    state_of_B: Tensor
    pool_BN: NDArray[np.int64]
    chosen_B: Tensor
    kept_B: Tensor
    old_B: Tensor
    columns: Mapping[str, Tensor]
    features_BNF: NDArray[np.float32] | None = None

    @classmethod
    def of(cls, episodes: Sequence[Episode], columns: Mapping[str, Sequence[float]]) -> "Batch":
        """Lay the steps of all episodes end to end; every column has one value per step, in that order.

        Episodes without a search have no row, hence no gradient. Each half of the states is sorted by length, so
        a pass pads little and the halves of a batch stay alike (see :meth:`Learner.update`).
        """
        steps = [step.retrieval for episode in episodes for step in episode.steps]
        distinct, distinct_of = unique([retrieval.state for retrieval in steps])
        middle = len(distinct) // 2
        states = [*sorted(distinct[:middle], key=len), *sorted(distinct[middle:], key=len)]
        place = {state: number for number, state in enumerate(states)}
        state_of = np.array([place[state] for state in distinct], dtype=np.int64)[distinct_of]
        order = np.argsort(state_of, kind="stable")
        tables = [table for row in order if (table := steps[row].features) is not None]
        return cls(
            states=states,
            state_of_B=torch.from_numpy(state_of[order]),
            pool_BN=pad([retrieval.pool for retrieval in steps])[order],
            chosen_B=torch.tensor([len(retrieval.passages) for retrieval in steps])[order],
            kept_B=torch.tensor([retrieval.kept for retrieval in steps])[order],
            old_B=torch.tensor([retrieval.logprob for retrieval in steps])[order],
            columns={name: torch.tensor(values, dtype=torch.float32)[order] for name, values in columns.items()},
            features_BNF=pad_tables(tables) if tables else None,
        )

    def __len__(self) -> int:
        return len(self.old_B)

    def where(self, kept_B: Tensor) -> "Batch":
        """Return the rows to keep (at least one) and their states."""
        kept_B = kept_B.clone()
        kept_B[0] |= not kept_B.any()
        rows = kept_B.nonzero().squeeze(-1)
        used_states, state_of_B = self.state_of_B[rows].unique(return_inverse=True)
        return Batch(
            states=[self.states[state] for state in used_states.tolist()],
            state_of_B=state_of_B,
            pool_BN=self.pool_BN[rows.numpy()],
            chosen_B=self.chosen_B[rows],
            kept_B=self.kept_B[rows],
            old_B=self.old_B[rows],
            columns={name: values[rows] for name, values in self.columns.items()},
            features_BNF=None if self.features_BNF is None else self.features_BNF[rows.numpy()],
        )

    def passes(self, states_per_pass: int) -> Iterator["Batch"]:
        """Cut into batches of at most ``states_per_pass`` states, and yield this process's share of each."""
        for first, end in shares(len(self.states), states_per_pass):
            low, high = torch.searchsorted(self.state_of_B, torch.tensor([first, end])).tolist()
            yield Batch(
                states=self.states[first:end],
                state_of_B=self.state_of_B[low:high] - first,
                pool_BN=self.pool_BN[low:high],
                chosen_B=self.chosen_B[low:high],
                kept_B=self.kept_B[low:high],
                old_B=self.old_B[low:high],
                columns={name: values[low:high] for name, values in self.columns.items()},
                features_BNF=None if self.features_BNF is None else self.features_BNF[low:high],
            )


def features_by_state(episodes: Sequence[Episode]) -> StateFeatures:
    """Return the features of every state's candidates, by row; {} if the policy reads none."""
    features: dict[str, dict[int, NDArray[np.float32]]] = {}
    for episode in episodes:
        for retrieval in (step.retrieval for step in episode.steps):
            if retrieval.features is not None and retrieval.state not in features:
                features[retrieval.state] = dict(zip(retrieval.pool, retrieval.features, strict=True))
    return features


def shares(states: int, states_per_pass: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of this process's states in every pass; a share may be empty.

    >>> list(shares(5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    for first in range(0, states, states_per_pass):
        low, high = distributed.share(min(states_per_pass, states - first))
        yield first + low, first + high
