"""InfoNCE, the supervised baseline that `full` is compared with (arXiv 1807.03748).

Same questions, same rollouts and same number of updates as the RL run, but the gradient comes from
labels: every state is drawn to the first gold passage that its episode had not found yet, and away
from the gold passages of all other questions of the step (in-batch negatives).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from harr.compute import distributed
from harr.params.train import PolicyParams
from harr.rag.policies.dense import unique
from harr.rag.setup import Setup
from harr.train.batch import reward_figures, rollouts, shares
from harr.train.learner import Learner
from harr.types import Episode, Log


def train(params: PolicyParams, setup: Setup, out: Path, work: Path, log: Log, seed: int) -> list[dict[str, float]]:
    """Train the retriever of ``setup`` on gold passages and write its adapter to ``out``; resumes as GRPO does."""
    learner = Learner.open(params, setup, work, seed, kind="infonce")
    for step in learner.steps(log):
        episodes = rollouts(params, setup, seed, step)
        scores = setup.reward.score(episodes)
        values = reward_figures(params, setup, scores, setup.reward.totals(scores, step), episodes, step)
        targets = first_missing_gold(episodes)
        if targets:
            for _ in range(params.num_iterations):
                values |= update(params, learner, targets, episodes)
        learner.history.append(values | {"distinct_states": float(len(targets))})
    return learner.export(out)


def first_missing_gold(episodes: Sequence[Episode]) -> dict[str, str]:
    """Return state -> id of the first gold passage, in hop order, that the searches before had not found."""
    targets: dict[str, str] = {}
    for episode in episodes:
        found: set[str] = set()
        for step in episode.steps:
            missing = [pid for pid in episode.question.gold_ids if pid not in found]
            if missing:
                targets.setdefault(step.retrieval.state, missing[0])
            found |= {passage.id for passage in step.retrieval.passages}
    return targets


def update(
    params: PolicyParams, learner: Learner, targets: dict[str, str], episodes: Sequence[Episode]
) -> dict[str, float]:
    """Take one optimizer step on the mean cross-entropy of all distinct states."""
    learner.optimizer.zero_grad()
    policy, states = learner.dense, list(targets)
    groups = [episode.question.gold_ids for episode in episodes]
    golds, _ = unique([pid for group in groups for pid in group])
    rows = policy.passages.rows_of(golds)
    vectors_GD = torch.from_numpy(policy.vectors.take(np.array([rows[pid] for pid in golds])))
    allowed_UG = _allowed(states, targets, golds, groups)
    total = 0.0
    for first, end in shares(len(states), params.states_per_pass):
        part = states[first:end]
        states_UD = learner.vectors(part)
        logits_UG = states_UD @ vectors_GD.to(states_UD).T / policy.temperature
        hidden_UG = torch.from_numpy(~allowed_UG[first:end]).to(states_UD.device)
        label_U = torch.tensor([golds.index(targets[state]) for state in part], device=states_UD.device)
        masked_UG = logits_UG.masked_fill(hidden_UG, float("-inf"))
        loss = torch.nn.functional.cross_entropy(masked_UG, label_U, reduction="sum")
        learner.backward(loss / len(states))
        total += float(loss.detach())
    return distributed.total({"loss": total / len(states)}) | learner.update()


def _allowed(
    states: Sequence[str], targets: dict[str, str], golds: Sequence[str], groups: Sequence[Sequence[str]]
) -> NDArray[np.bool_]:
    """Return which gold passages compete for each state: its own, and those of questions that do not share it."""
    kin: dict[str, set[str]] = {}
    for group in groups:
        for pid in group:
            kin.setdefault(pid, set()).update(group)
    return np.array([[pid == targets[state] or pid not in kin[targets[state]] for pid in golds] for state in states])
