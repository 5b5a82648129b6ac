"""GRPO for a dense retriever (HARR, arXiv 2602.03645; DeepSeekMath, arXiv 2402.03300).

Each step: G rollouts of every question with Plackett-Luce sampling, a reward per rollout, the
advantage within its group, and a clipped policy-gradient update of the LoRA adapter. Passage
vectors never change; only the encoding of the state learns.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from peft import PeftModel
from torch import Tensor

from harr.errors import CorpusError
from harr.files import fingerprint, publish
from harr.params import GRPO
from harr.policies import plackett_luce
from harr.policies.adapter import add_adapter, save_adapter
from harr.policies.dense import DensePolicy, pad, unique
from harr.progress import bar
from harr.rollout import play
from harr.scoring.rewards import prefix_gains
from harr.setup import Setup
from harr.train.advantages import group_advantages, step_advantages
from harr.train.checkpoint import Checkpoints
from harr.train.losses import clipped_surrogate, k3_kl, step_weights
from harr.types import Episode, Log, Question


def train(params: GRPO, setup: Setup, out: Path, work: Path, log: Log, seed: int) -> list[dict[str, float]]:
    """Train the retriever of ``setup`` and write its adapter to ``out``.

    Unfinished work is kept in ``work`` under a fingerprint of everything that matters; a killed run
    resumes there and ends with the same weights. ``log(step, values)`` is called after every step.

    Returns:
        One row per step: reward, loss, KL, clipping, entropy, distinct states, seconds.
    """
    if not setup.questions:
        raise CorpusError("data/filtered/questions.jsonl holds no question; widen filter.target or check the filter")
    policy = setup.retriever
    accelerator = Accelerator(mixed_precision="bf16" if params.precision == "bfloat16" else "no")
    adapter = add_adapter(policy.encoder, rank=params.lora.rank, alpha=params.lora.alpha, seed=seed)
    optimizer = torch.optim.AdamW(
        [weight for weight in adapter.parameters() if weight.requires_grad],
        lr=params.learning_rate,
        weight_decay=params.weight_decay,
    )
    policy.encoder.model, optimizer = accelerator.prepare(policy.encoder.model, optimizer)
    run = fingerprint({"params": params.model_dump(), "setup": setup.identity, "seed": seed})
    checkpoints = Checkpoints(work / run)
    start, history = checkpoints.load(adapter, optimizer)
    if start:
        print(f"resuming train at step {start}/{params.steps} ({start / params.steps:.1%})")
    with bar(total=params.steps, desc="train", unit="step", initial=start) as progress:
        for step in range(start, params.steps):
            began = time.perf_counter()
            for group in optimizer.param_groups:
                group["lr"] = params.learning_rate * min(1.0, (step + 1) / (params.warmup_steps + 1))
            episodes = rollouts(params, setup, seed, step)
            values = update(params, setup, adapter, accelerator, optimizer, episodes)
            values |= {"seconds": time.perf_counter() - began}
            history.append({"step": step, **values})
            log(step, values)
            progress.set_postfix(reward=f"{values['reward_mean']:.3f}", refresh=False)
            progress.update()
            if (step + 1) % params.checkpoint_every == 0:
                checkpoints.save(step + 1, adapter, optimizer, history)
    draft = work / run / "adapter"
    save_adapter(adapter, policy.encoder, draft)
    publish(draft, out)
    return history


def rollouts(params: GRPO, setup: Setup, seed: int, step: int) -> list[Episode]:
    """G sampled episodes of every question of this step, the group of a question side by side."""
    batch = question_batch(setup.questions, params.questions_per_step, seed, step)
    setup.retriever.sampling = torch.Generator().manual_seed(seed * 1_000_003 + step)
    repeated = [question for question in batch for _ in range(params.group_size)]
    return play(repeated, setup.pipeline, setup.retriever, setup.generator)


def question_batch(questions: Sequence[Question], count: int, seed: int, step: int) -> Iterator[Question]:
    """The questions of one step: epochs are seeded permutations laid end to end."""
    for position in range(step * count, (step + 1) * count):
        epoch, place = divmod(position, len(questions))
        order = np.random.default_rng([seed, epoch]).permutation(len(questions))
        yield questions[order[place]]


@dataclass(frozen=True)
class Batch:
    """All searches of a step's episodes as tensors; rows are sorted by state.

    states: U distinct texts. state_of_B: the state of each row. pool_BN: candidate rows, chosen
    first, padded with -1. chosen_B: how many were chosen. old_B: behaviour log-probabilities.
    weight_B: share of each row in the loss (they sum to 1 for ``grpo`` and ``bnpo``).
    """

    states: list[str]
    state_of_B: Tensor
    pool_BN: NDArray[np.int64]
    chosen_B: Tensor
    old_B: Tensor
    advantage_B: Tensor
    weight_B: Tensor

    def slices(self, states_per_pass: int) -> Iterator[tuple[list[str], slice, int]]:
        """Cut into passes of at most so many distinct states: (states, their rows, first state)."""
        for first in range(0, len(self.states), states_per_pass):
            bounds = torch.searchsorted(self.state_of_B, torch.tensor([first, first + states_per_pass]))
            yield self.states[first : first + states_per_pass], slice(int(bounds[0]), int(bounds[1])), first


def make_batch(params: GRPO, episodes: Sequence[Episode], rewards: Tensor, reward: Callable[[Episode], float]) -> Batch:
    """Lay the steps of all episodes end to end. Episodes without a search have no row and no gradient."""
    if params.credit == "step":
        gains = [prefix_gains(reward, episode) for episode in episodes]
        advantages = step_advantages(gains, params.group_size, scale_by_std=params.scale_by_std)
    else:
        groups_BG = rewards.view(-1, params.group_size)
        flat = group_advantages(groups_BG, scale_by_std=params.scale_by_std).flatten().tolist()
        advantages = [[flat[e]] * len(episode.steps) for e, episode in enumerate(episodes)]
    steps = [step.retrieval for episode in episodes for step in episode.steps]
    states, state_of = unique([retrieval.state for retrieval in steps])
    order = np.argsort(state_of, kind="stable")
    weight_B = step_weights([len(episode.steps) for episode in episodes], params.aggregation)
    advantage_B = torch.tensor([value for episode in advantages for value in episode], dtype=torch.float32)
    return Batch(
        states=states,
        state_of_B=torch.from_numpy(state_of[order]),
        pool_BN=pad([retrieval.pool for retrieval in steps])[order],
        chosen_B=torch.tensor([len(retrieval.passages) for retrieval in steps])[order],
        old_B=torch.tensor([retrieval.logprob for retrieval in steps])[order],
        advantage_B=advantage_B[order],
        weight_B=weight_B[order],
    )


def update(
    params: GRPO,
    setup: Setup,
    adapter: PeftModel,
    accelerator: Accelerator,
    optimizer: Any,
    episodes: Sequence[Episode],
) -> dict[str, float]:
    """One batch of rollouts, ``num_iterations`` optimiser steps; returns the step's figures."""
    rewards = torch.tensor([setup.reward(episode) for episode in episodes], dtype=torch.float32)
    groups_BG = rewards.view(-1, params.group_size)
    values = {
        "reward_mean": float(rewards.mean()),
        "reward_std": float(groups_BG.std(-1).mean()),
        "zero_std_share": float((groups_BG.std(-1) < 1e-6).float().mean()),
        "episodes_without_search": float(sum(not episode.steps for episode in episodes)),
        "malformed": float(sum(episode.outcome.malformed for episode in episodes)),
    }
    if not any(episode.steps for episode in episodes):
        return values | {"distinct_states": 0.0, "loss": 0.0}
    batch = make_batch(params, episodes, rewards, setup.reward)
    for _ in range(params.num_iterations):
        values |= _optimise(params, setup.retriever, adapter, accelerator, optimizer, batch)
    return values | {"distinct_states": float(len(batch.states)), "searches": float(len(batch.old_B))}


def _optimise(
    params: GRPO, policy: DensePolicy, adapter: PeftModel, accelerator: Accelerator, optimizer: Any, batch: Batch
) -> dict[str, float]:
    """Accumulate the batch's gradient in passes over its distinct states, then step once."""
    optimizer.zero_grad()
    sums = dict.fromkeys(("loss", "kl", "clip_share", "entropy", "logprob_gap"), 0.0)
    for states, rows, first in batch.slices(params.states_per_pass):
        pool_BN, chosen_B = batch.pool_BN[rows], batch.chosen_B[rows]
        state_of_B = batch.state_of_B[rows] - first
        logits_BN = _logits(policy, states, state_of_B, pool_BN)
        new_B, old_B = plackett_luce.log_prob(logits_BN, chosen_B), batch.old_B[rows].to(logits_BN)
        advantage_B, weight_B = batch.advantage_B[rows].to(new_B), batch.weight_B[rows].to(new_B)
        loss_B = clipped_surrogate(new_B, old_B, advantage_B, params.clip_low, params.clip_high)
        if params.kl_weight:
            with torch.no_grad(), adapter.disable_adapter():
                reference_B = plackett_luce.log_prob(_logits(policy, states, state_of_B, pool_BN), chosen_B)
            kl_B = k3_kl(new_B, reference_B)
            loss_B = loss_B + params.kl_weight * kl_B
            sums["kl"] += float((kl_B * weight_B).sum())
        loss = (loss_B * weight_B).sum()
        accelerator.backward(loss)
        with torch.no_grad():
            ratio_B = (new_B - old_B).exp()
            clipped_B = (ratio_B < 1 - params.clip_low) | (ratio_B > 1 + params.clip_high)
            sums["loss"] += float(loss)
            sums["clip_share"] += float(clipped_B.float().sum()) / len(batch.old_B)
            sums["logprob_gap"] = max(sums["logprob_gap"], float((new_B - old_B).abs().max()))
            sums["entropy"] += float(plackett_luce.entropy(logits_BN).sum()) / len(batch.old_B)
    norm = accelerator.clip_grad_norm_([p for p in adapter.parameters() if p.requires_grad], params.max_grad_norm)
    optimizer.step()
    return sums | {"grad_norm": float(norm)}


def _logits(policy: DensePolicy, states: Sequence[str], state_of_B: Tensor, pool_BN: NDArray[np.int64]) -> Tensor:
    encoder = policy.encoder
    states_UD = encoder.forward(states, prompt=encoder.query_prompt, max_tokens=policy.max_tokens)
    return policy.logits(states_UD, state_of_B, pool_BN)
