"""REPLUG LSR: the retriever learns a distribution made from the passages' rewards (arXiv 2301.12652, section 4).

Published: for a context x, with its nearest passages d and the answer y,

    loss = KL(P || Q),   P(d) = softmax of s(d, x) / gamma,   Q(d) = softmax of p_LM(y | d, x) / beta

where the language model reads each passage alone. Here the reader is a black box with one reward per episode, and an
episode has several searches. So p_LM is replaced by the mean reward of the group's rollouts that chose d in this state:
the same rollouts, questions and reader calls as for ``trained``. P and Q are over the passages that competed there; one
that no rollout chose counts as the worst chosen one, since otherwise nothing would keep the state away from it. A state
whose passages all had the same reward says nothing and is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean

import torch
from pydantic import Field

from harr.builders.methods import Method, describe_steps
from harr.compute import distributed
from harr.params.train import FunctionTrainParams
from harr.rag.policies import plackett_luce
from harr.rag.retrieval.hybrid import pad
from harr.rag.setup import Setup
from harr.train import infonce
from harr.train.advantages import NEGLIGIBLE
from harr.train.batch import StateFeatures, features_by_state, shares
from harr.train.learner import Learner
from harr.types import Episode, Log
from harr_lm_supervision.policy import SupervisedParams, SupervisionParams, policy_of

Rewards = Mapping[str, Mapping[int, float]]
"""State -> row of a passage that competed there -> its worth."""


class ReplugParams(SupervisionParams):
    """Settings of REPLUG (``settings``)."""

    target_temperature: float = Field(0.1, gt=0)
    """Divisor of the rewards in the target distribution."""


class ReplugPolicy(SupervisedParams):
    """Parameters of a REPLUG run."""

    own: ReplugParams


def train(
    section: FunctionTrainParams, setup: Setup, out: Path, work: Path, log: Log, seed: int
) -> list[dict[str, float]]:
    """Train the retriever of ``setup`` on the rewards of passages and write its adapter to ``out``; resumes as GRPO."""
    params = policy_of(ReplugPolicy, section)
    learner = Learner.open(params, setup, work, seed, kind="replug")
    for played in infonce.rewarded_steps(params, setup, learner, seed, log):
        episodes, values = played.episodes, played.figures
        rewards = passage_rewards(episodes, played.rewards, params.group_size)
        if rewards:
            known = features_by_state(episodes)
            for _ in range(params.num_iterations):
                values |= update(params, learner, rewards, known)
        learner.history.append(values | {"distinct_states": float(len(rewards))})
    return learner.export(out)


def passage_rewards(episodes: Sequence[Episode], totals: Sequence[float], group_size: int) -> Rewards:
    """Return the worth of passages in the states of each group, where it differs.

    It is the mean reward of the rollouts that chose the passage, or the lowest such mean if none chose it.
    """
    rewards: dict[str, dict[int, float]] = {}
    played = iter(zip(episodes, totals, strict=True))
    for group in iter(lambda: list(islice(played, group_size)), []):
        earned: dict[str, dict[int, list[float]]] = {}
        pools = infonce.pools_of([episode for episode, _ in group])
        for episode, total in group:
            for state, row in _choices(episode):
                earned.setdefault(state, {}).setdefault(row, []).append(total)
        for state, rows in earned.items():
            means = {row: fmean(values) for row, values in rows.items()}
            worst = min(means.values())
            if max(means.values()) - worst > NEGLIGIBLE:
                rewards.setdefault(state, dict.fromkeys(pools[state], worst) | means)
    return rewards


def _choices(episode: Episode) -> Iterator[tuple[str, int]]:
    """Yield each state of an episode with the row of every passage chosen there."""
    for step in episode.steps:
        for row in step.retrieval.pool[: len(step.retrieval.passages)]:
            yield step.retrieval.state, row


def update(params: ReplugPolicy, learner: Learner, rewards: Rewards, known: StateFeatures) -> dict[str, float]:
    """Take one optimizer step on the mean divergence over all states."""
    learner.optimizer.zero_grad()
    policy, states = learner.dense, sorted(rewards, key=len)
    temperature = params.own.temperature or policy.temperature
    rows_UN = pad([list(rewards[state]) for state in states])
    reward_UN = torch.full(rows_UN.shape, plackett_luce.MASKED)
    for number, state in enumerate(states):
        worth_N = torch.tensor(list(rewards[state].values()))
        reward_UN[number, : len(worth_N)] = worth_N / params.own.target_temperature
    total = 0.0
    for first, end in shares(len(states), params.states_per_pass):
        states_UD = learner.vectors(states[first:end])
        rows_BN = rows_UN[first:end]
        scores_BN = policy.scores(states_UD, torch.arange(len(rows_BN)), rows_BN) / temperature
        scores_BN = scores_BN + learner.term(known, states[first:end], rows_BN)
        hidden_BN = torch.from_numpy(rows_BN < 0).to(states_UD.device)
        found_BN = scores_BN.masked_fill(hidden_BN, plackett_luce.MASKED).log_softmax(-1)
        wanted_BN = reward_UN[first:end].to(states_UD).log_softmax(-1)
        gap_BN = (found_BN.exp() * (found_BN - wanted_BN)).masked_fill(hidden_BN, 0.0)
        loss = gap_BN.sum()
        learner.backward(loss / len(states))
        total += float(loss.detach())
    return distributed.total({"loss": total / len(states)}) | learner.update()


METHOD = Method(
    train,
    describe=lambda params: describe_steps(policy_of(ReplugPolicy, params)) | {"method": "REPLUG"},
    settings=ReplugParams,
)
