"""PPO for a dense retriever (arXiv 1707.06347; HARR's second method, arXiv 2602.03645).

Like GRPO, but with a learnt baseline: a small value head reads the state vector, or a second encoder reads the state,
and GAE turns the step rewards of an episode into advantages. The KL to the base encoder is subtracted from every step's
reward. The critic is only in the checkpoints; the export is the adapter.
"""

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

import torch

from harr.compute import distributed
from harr.params.train import PPOParams
from harr.rag.policies import plackett_luce
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.encoder_adapter import unfreeze
from harr.rag.setup import Setup
from harr.train import infonce
from harr.train.advantages import generalized_advantages
from harr.train.batch import Batch
from harr.train.learner import Learner
from harr.train.losses import clip_mask, clipped_surrogate, clipped_value, k3_kl
from harr.types import Episode, Log, Value

HIDDEN = 64
VALUE_CLIP = 0.2
"""Maximum distance between a value and the old one; the loss clips beyond it."""
COLUMNS = ("advantage", "value", "target")


def train(params: PPOParams, setup: Setup, out: Path, work: Path, log: Log, seed: int) -> list[dict[str, float]]:
    """Train the retriever of ``setup`` and write its adapter to ``out``; resumes as ``grpo.train`` does."""
    policy = cast(DensePolicy, setup.policy)
    head = value_head(policy.vectors.width, seed) if params.critic == "head" else Critic(policy)
    rate = params.value_learning_rate
    learner = Learner.open(params, setup, work, seed, kind="ppo", head=head, head_rate=rate)
    for played in infonce.rewarded_steps(params, setup, learner, seed, log):
        episodes, values = played.episodes, played.figures
        if any(episode.steps for episode in episodes):
            parts = setup.reward.parts(played.scores, episodes, played.step, by_step=params.credit == "step")
            rewards_by_step = step_rewards(parts, episodes)
            batch, figures = make_batch(params, learner, head, episodes, rewards_by_step)
            values |= figures
            for _ in range(params.num_iterations):
                values |= update(params, learner, head, batch)
            values["distinct_states"] = float(len(batch.states))
        learner.history.append(values)
    return learner.export(out)


def value_head(width: int, seed: int) -> torch.nn.Sequential:
    """Build V(s) from a state vector of ``width``: one hidden layer, initially 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        last = torch.nn.Linear(HIDDEN, 1)
        head = torch.nn.Sequential(torch.nn.Linear(width, HIDDEN), torch.nn.Tanh(), last)
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    return head


class Critic(torch.nn.Module):
    """V(s) by its own encoder, a copy of the untrained policy's, and a linear layer; initially 0."""

    def __init__(self, policy: DensePolicy) -> None:
        super().__init__()
        self._encoder = copy.copy(policy.encoder)
        self._encoder.model = copy.deepcopy(policy.encoder.model)
        self.layers = unfreeze(self._encoder)
        self.last = torch.nn.Linear(policy.vectors.width, 1)
        torch.nn.init.zeros_(self.last.weight)
        torch.nn.init.zeros_(self.last.bias)
        self._prompt, self._max_tokens = policy.prompt, policy.max_tokens

    def forward(self, states: Sequence[str]) -> torch.Tensor:
        """Return V of states, (U, 1); without states, read an empty text so that every process has a gradient."""
        if not states:
            return self([""])[:0]
        vectors_UD = self._encoder.forward(states, prompt=self._prompt, max_tokens=self._max_tokens)
        value_U1: torch.Tensor = self.last(vectors_UD[:, : self.last.in_features])
        return value_U1


def make_batch(
    params: PPOParams,
    learner: Learner,
    head: torch.nn.Module,
    episodes: Sequence[Episode],
    rewards_by_step: Sequence[Sequence[float]],
) -> tuple[Batch, dict[str, float]]:
    """Return rows with advantage (whitened over the batch), value and value target, and figures of V's fit."""
    values, kl = _evaluate_states(params, learner, head, episodes)
    advantages: list[float] = []
    targets: list[float] = []
    for episode, gain in zip(episodes, rewards_by_step, strict=True):
        rows = slice(len(targets), len(targets) + len(episode.steps))
        shaped = [reward - params.kl_weight * step_kl for reward, step_kl in zip(gain, kl[rows], strict=True)]
        advantage_S, target_S = generalized_advantages(
            shaped, values[rows], discount=params.discount, lambda_=params.gae_lambda
        )
        advantages += advantage_S
        targets += target_S
    raw, target = torch.tensor(advantages).double(), torch.tensor(targets).double()
    white = (raw - raw.mean()) / (raw.std(correction=0) + 1e-8)
    unexplained = (target - torch.tensor(values).double()).var(correction=0) / (target.var(correction=0) + 1e-8)
    columns = {"advantage": white.tolist(), "value": values, "target": targets}
    return Batch.of(episodes, columns), {"explained_variance": 1 - float(unexplained), "kl": sum(kl) / len(kl)}


def step_rewards(parts: Iterable[tuple[float, Sequence[Value]]], episodes: Sequence[Episode]) -> list[list[float]]:
    """Return the reward of every step; a term of the whole episode is credited to its last step.

    >>> from harr.types import Question, Retrieval, Search, Step
    >>> question = Question("q", "Who?")
    >>> two = Episode(question, (Step(Search(question, "Who?"), Retrieval(())),) * 2)
    >>> step_rewards([(1.0, [1.0]), (0.5, [[1.0, 0.0]])], [two])
    [[0.5, 1.0]]
    """
    total = [[0.0] * len(episode.steps) for episode in episodes]
    for weight, values in parts:
        for row, value in zip(total, values, strict=True):
            if isinstance(value, list):
                row[:] = [a + weight * b for a, b in zip(row, value, strict=True)]
            elif value is not None and row:
                row[-1] += weight * value
    return total


def _values(learner: Learner, head: torch.nn.Module, states_UD: torch.Tensor, rows: Batch) -> torch.Tensor:
    """Return V of every row's state, from its vector or its text."""
    inputs = rows.states if isinstance(head, Critic) else states_UD[:, : learner.dense.vectors.width].float()
    value_U: torch.Tensor = head(inputs).squeeze(-1)
    return value_U[rows.state_of_B]


def _evaluate_states(
    params: PPOParams, learner: Learner, head: torch.nn.Module, episodes: Sequence[Episode]
) -> tuple[list[float], list[float]]:
    """Return every search's V(s) and KL from the base encoder, in order, under the behaviour weights."""
    count = sum(len(episode.steps) for episode in episodes)
    batch = Batch.of(episodes, {"place": range(count)})
    values_2S = torch.zeros(2, count, dtype=torch.float64)
    with torch.no_grad():
        for rows in batch.passes(params.states_per_pass):
            rows_S = rows.columns["place"].long()
            value_B = _values(learner, head, learner.vectors(rows.states), rows)
            values_2S[0, rows_S] = value_B.cpu().double()
            if params.kl_weight:
                reference_B = learner.reference(rows).cpu()
                kl_B = k3_kl(rows.old_B, reference_B) if params.kl_estimator == "k3" else rows.old_B - reference_B
                values_2S[1, rows_S] = kl_B.double()
    values, kl = distributed.sum_processes(values_2S).tolist()
    return values, kl


def update(params: PPOParams, learner: Learner, head: torch.nn.Module, batch: Batch) -> dict[str, float]:
    """Accumulate the gradients of policy and value in passes over the distinct states, then step once.

    The value loss does not reach the encoder: the head reads a detached vector.
    """
    learner.optimizer.zero_grad()
    sums = dict.fromkeys(("loss", "value_loss", "clip_share", "entropy"), 0.0)
    for rows in batch.passes(params.states_per_pass):
        states_UD = learner.vectors(rows.states)
        logits_BN = learner.dense.logits(states_UD, rows.state_of_B, rows.pool_BN, rows.features_BNF)
        new_B = plackett_luce.log_prob(logits_BN, rows.chosen_B)
        columns = (rows.old_B, *(rows.columns[name] for name in COLUMNS))
        old_B, advantage_B, value_B, target_B = (column.to(new_B) for column in columns)
        policy_B = clipped_surrogate(new_B, old_B, advantage_B, *params.clip)
        new_value_B = _values(learner, head, states_UD.detach(), rows)
        fit_B = clipped_value(new_value_B, value_B, target_B, VALUE_CLIP)
        entropy_B = plackett_luce.entropy(logits_BN)
        loss_B = policy_B + params.value_weight * fit_B
        learner.backward(loss_B.sum() / len(batch))
        clipped_B = clip_mask(new_B, old_B, *params.clip)
        figures = {"loss": policy_B, "value_loss": fit_B, "clip_share": clipped_B.float(), "entropy": entropy_B}
        totals = torch.stack([values_B.detach().sum() for values_B in figures.values()]).tolist()
        for name, total in zip(figures, totals, strict=True):
            sums[name] += total / len(batch)
    return distributed.total(sums) | learner.update()
