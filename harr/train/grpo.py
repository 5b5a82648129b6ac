"""GRPO for a dense retriever (HARR, arXiv 2602.03645; DeepSeekMath, arXiv 2402.03300).

Each step: G rollouts of every question with Plackett-Luce sampling, a reward per rollout, its
advantage within its group, and a clipped policy-gradient update of the LoRA adapter. Passage
vectors never change; only the state's encoding is trained.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import torch

from harr.compute import distributed
from harr.params.train import GRPOParams
from harr.rag.policies import plackett_luce
from harr.rag.scoring import scalarize
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train import infonce
from harr.train.advantages import NEGLIGIBLE, group_advantages, step_advantages
from harr.train.batch import Batch
from harr.train.learner import Learner
from harr.train.losses import clip_mask, clipped_surrogate, k3_kl, step_weights
from harr.types import Episode, Log, Value


def train(params: GRPOParams, setup: Setup, out: Path, work: Path, log: Log, seed: int) -> list[dict[str, float]]:
    """Train the retriever of ``setup`` and write its adapter to ``out``.

    Unfinished work is kept in ``work`` under a fingerprint of everything that matters; a killed run
    resumes there and ends with the same weights. Calls ``log(step, values)`` after every step.

    Returns:
        One row per step: reward, loss, KL, clipping, entropy, distinct states, seconds. ``without_advantage`` is 1
        if no rollout beat the others of its question; ``checkpoints.window`` such steps end the run.
    """
    learner = Learner.open(params, setup, work, seed, kind="grpo")
    for played in infonce.rewarded_steps(params, setup, learner, seed, log):
        episodes, values = played.episodes, played.figures
        if any(episode.steps for episode in episodes):
            advantages = advantages_of(params, setup.reward, played.scores, episodes, played.step)
            flat = list(chain.from_iterable(advantages))
            values["without_advantage"] = float(all(abs(value) < NEGLIGIBLE for value in flat))
            lengths = [len(episode.steps) for episode in episodes]
            weights = step_weights(lengths, params.estimator).tolist()
            batch = Batch.of(episodes, {"advantage": flat, "weight": weights})
            values["distinct_states"] = float(len(batch.states))
            if not params.kl_weight:  # then a row without advantage has no gradient
                batch = batch.where(batch.columns["advantage"].abs() >= NEGLIGIBLE)
            for _ in range(params.num_iterations):
                values |= update(params, learner, batch)
        learner.history.append(values)
    return learner.export(out)


def advantages_of(
    params: GRPOParams, reward: Reward, scores: Mapping[str, Sequence[Value]], episodes: Sequence[Episode], step: int
) -> list[list[float]]:
    """Return the advantage of every step of every episode.

    Every term of the reward is normalised within its group, then weighted and summed. A term of the
    whole episode counts equally for all its steps (``credit: episode``) or is split into the steps'
    gains (``credit: step``); a term per step is compared step by step. Any other ``reward.mix`` first
    combines an episode's terms into one reward, which is then normalised. With ``filter_by_mean`` an
    episode that is better than its group in one term and worse in another has no advantage.
    """
    if reward.mix == "weighted":
        total = _normalize_and_sum(params, reward, scores, episodes, step)
    else:
        mixed_BG = torch.from_numpy(scalarize.combine(*reward.table(scores, step, params.group_size), reward.mix))
        flat = group_advantages(mixed_BG, params.estimator).flatten().tolist()
        total = [[value] * len(episode.steps) for value, episode in zip(flat, episodes, strict=True)]
    if not reward.filter_by_mean:
        return total
    flags = scalarize.consistent(*reward.table(scores, step, params.group_size)).flatten().tolist()
    return [row if keep else [0.0] * len(row) for row, keep in zip(total, flags, strict=True)]


def _normalize_and_sum(
    params: GRPOParams, reward: Reward, scores: Mapping[str, Sequence[Value]], episodes: Sequence[Episode], step: int
) -> list[list[float]]:
    total = [[0.0] * len(episode.steps) for episode in episodes]
    for weight, values in reward.parts(scores, episodes, step, by_step=params.credit == "step"):
        if any(isinstance(value, list) for value in values):
            per_step = [value if isinstance(value, list) else [] for value in values]
            parts = step_advantages(per_step, params.group_size, params.estimator, params.discount)
        else:
            table_E = torch.tensor([float("nan") if value is None else value for value in values], dtype=torch.float64)
            flat = group_advantages(table_E.view(-1, params.group_size), params.estimator).flatten().tolist()
            parts = [[value] * len(episode.steps) for value, episode in zip(flat, episodes, strict=True)]
        total = [[a + weight * b for a, b in zip(*rows, strict=True)] for rows in zip(total, parts, strict=True)]
    return total


def update(params: GRPOParams, learner: Learner, batch: Batch) -> dict[str, float]:
    """Accumulate the batch's gradient in passes over its distinct states, then step once."""
    learner.optimizer.zero_grad()
    sums = dict.fromkeys(("loss", "kl", "clip_share", "entropy", "logprob_gap"), 0.0)
    passes = list(batch.passes(params.states_per_pass))
    first_half = torch.empty(0)
    for number, rows in enumerate(passes, start=1):
        logits_BN = learner.logits(rows)
        new_B = plackett_luce.log_prob(logits_BN, rows.chosen_B, rows.kept_B)
        columns = (rows.old_B, rows.columns["advantage"], rows.columns["weight"])
        old_B, advantage_B, weight_B = (column.to(new_B) for column in columns)
        loss_B = clipped_surrogate(new_B, old_B, advantage_B, *params.clip)
        kl_B = k3_kl(new_B, learner.reference(rows)) if params.kl_weight else torch.zeros_like(new_B)
        if params.kl_weight:
            loss_B = loss_B + params.kl_weight * kl_B
        loss = (loss_B * weight_B).sum()
        learner.backward(loss)
        if number == len(passes) // 2:
            first_half = learner.gradient()
        with torch.no_grad():
            clipped, entropy = clip_mask(new_B, old_B, *params.clip).sum(), plackett_luce.entropy(logits_BN).sum()
            figures = torch.stack([loss, (kl_B * weight_B).sum(), clipped, entropy])
            totals = torch.cat([figures, (new_B - old_B).abs()]).tolist()  # waits for the GPU only once
        sums["loss"] += totals[0]
        sums["kl"] += totals[1]
        sums["clip_share"] += totals[2] / len(batch)
        sums["entropy"] += totals[3] / len(batch)
        sums["logprob_gap"] = max([sums["logprob_gap"], *totals[4:]])
    halves = (first_half, learner.gradient() - first_half) if len(passes) > 1 else ()
    return distributed.total(sums, largest="logprob_gap") | learner.update(halves)
