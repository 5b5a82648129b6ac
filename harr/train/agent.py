"""GRPO for the language model that searches and answers, by TRL (arXiv 2402.03300; Search-R1, arXiv 2503.09516).

TRL provides the loss and the optimizer; our ``rollout_func`` plays the pipeline with a fixed retriever.
Environment tokens are attended to but have no loss (``env_mask``). With ``train.server`` another engine samples;
TRL corrects for its log-probabilities by importance sampling.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import patch_environment
from datasets import Dataset
from trl.trainer.grpo_config import GRPOConfig

from harr.compute import distributed
from harr.compute.checkpoints import Checkpoints
from harr.compute.precision import resolve_precision
from harr.compute.tensors import trained_weights
from harr.compute.trl import CHECKPOINTING, QUIET, Learning, StepCallback, open_trainer, rename_figures, run_trl
from harr.errors import CorpusError, ParamsError
from harr.io.files import draft, fingerprint, note_published, read_json, write_json
from harr.params.train import AgentParams
from harr.rag.generation.adapter import begin, save_language_model
from harr.rag.generation.local_model import LanguageModel, LocalGenerator, load_model
from harr.rag.generation.sampler import Sampler, Trace
from harr.rag.generation.shared import SharedGenerator
from harr.rag.pipelines.tags import thoughts
from harr.rag.rollout import play
from harr.rag.scoring import scalarize
from harr.rag.scoring.ranking import recall
from harr.rag.scoring.reward import Scores
from harr.rag.setup import Setup
from harr.rag.validation import Validation, checkpoint_facts
from harr.train.advantages import all_alike
from harr.train.agent_trainer import AgentTrainer, skip_padding
from harr.train.batch import draw_rows, rate_share, reward_figures
from harr.train.guard import choose_point, find_best_checkpoint, find_stop_reason
from harr.train.record import plain_figures
from harr.train.vllm import CAP, attach_vllm, check_gap
from harr.types import Episode, Log, Question

FIGURES = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "entropy": "entropy",
    "kl": "kl",
    "clip_ratio/region_mean": "clip_share",
    "sampling/sampling_logp_difference/mean": "logprob_gap",
    "sampling/importance_sampling_ratio/min": "is_ratio_min",
    "sampling/importance_sampling_ratio/mean": "is_ratio_mean",
    "sampling/importance_sampling_ratio/max": "is_ratio_max",
    "capped_share": "capped_share",
}
"""Figures in TRL's logs and their names here; the importance ratio is logged only if another engine samples."""


@dataclass
class RolloutFunction:
    """TRL's rollout function: plays a step's questions and returns tokens, rewards and masks.

    TRL distributes a step's questions over the processes. All processes play all of them together, so the index,
    the judge and every figure cover the whole step; each returns only its own episodes to TRL.
    """

    params: AgentParams
    setup: Setup
    language_model: LanguageModel
    seed: int
    step: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    _calls: int = 0
    _vllm: Any = None

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Play the questions with these ids, group by group; return lists with one entry per episode."""
        question_of = {question.id: question for question in self.setup.questions}
        own_count, prompts = len(prompts), distributed.gather_rows(prompts)  # all processes play all episodes
        began, self._calls, training = time.perf_counter(), 0, trainer.model.training
        self._vllm = trainer.vllm_generation if self.params.server else None
        trainer.model.eval()
        sampler = Sampler(self.language_model, self.generate, max_tokens=self.params.max_tokens)
        episodes = play([question_of[name] for name in prompts], self.setup.pipeline, self.setup.retriever, sampler)
        trainer.model.train(training)
        first = distributed.number() * own_count
        rows = self.rows(episodes, sampler).items()
        self.figures["play_seconds"] = time.perf_counter() - began
        return {name: values and values[first : first + own_count] for name, values in rows}

    def generate(self, contexts: Sequence[Sequence[int]], stops: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Sample in batches, each process its share; random numbers follow from seed, step, call and row."""
        self._calls += 1
        return distributed.share_work(len(contexts), lambda rows: self._write(contexts, stops, rows))

    def _write(
        self, contexts: Sequence[Sequence[int]], stops: Sequence[tuple[str, ...]], rows: Sequence[int]
    ) -> list[list[int]]:
        requests = [contexts[row] for row in rows], [stops[row] for row in rows]
        keys = [f"{self.seed}/{self.step}/{self._calls}/{row}" for row in rows]
        if self._vllm:
            written: list[list[int]] = self._vllm.generate(*requests, keys)
            return written
        return self.language_model.generate(
            *requests,
            temperature=self.params.temperature,
            keys=keys,
            max_tokens=self.params.max_tokens,
            batch_size=self.params.sampled_at_once,
        )

    def rows(self, episodes: Sequence[Episode], sampler: Sampler) -> dict[str, Any]:
        """Return the episodes' tokens, masks and rewards in TRL's format.

        All fit the model's context: a prompt that leaves no room for a completion loses its beginning, and has no loss.
        """
        traces = [Trace.of(episode) for episode in episodes]
        end, room = sorted(self.language_model.ends)[:1], self.language_model.room
        for trace in traces:
            if not trace.ids:  # no room to write anything, and TRL accepts no empty text
                trace.observe([self.language_model.pad])
            elif trace.whole and trace.ids[-1] not in self.language_model.ends and len(trace.prompt + trace.ids) < room:
                trace.observe(end)  # without an end token TRL treats a text as truncated
        scores = self.setup.reward.score(episodes)
        rewards = self.setup.reward.totals_or_none(scores, self.step)
        self.figures = reward_figures(self.params, self.setup, scores, rewards, episodes, self.step)
        self.figures |= trace_figures(episodes, traces) | {"without_room": sampler.usage()["without_room"]}
        self.figures["without_reward"] = float(rewards.count(None))
        mixed = self.mix_rewards(scores, rewards)
        self.figures["without_advantage"] = float(all_alike(mixed, self.params.group_size))
        return {
            "prompt_ids": [trace.prompt[-max(1, room - len(trace.ids)) :] for trace in traces],
            "completion_ids": [trace.ids for trace in traces],
            "env_mask": [trace.own for trace in traces],
            "logprobs": [trace.logprobs for trace in traces] if self._vllm else None,
            "reward": mixed,
        }

    def mix_rewards(self, scores: Scores, totals: Sequence[float | None]) -> list[float | None]:
        """Combine the rewards by ``reward.mix``.

        An episode that ``filter_by_mean`` leaves out, or to which no term applies, gets None and has no gradient.
        """
        reward = self.setup.reward
        table = reward.table(scores, self.step, self.params.group_size)
        rewards = scalarize.combine(*table, reward.mix).flatten().tolist()
        flags = scalarize.consistent(*table).flatten().tolist() if reward.filter_by_mean else [True] * len(rewards)
        rows = zip(rewards, flags, totals, strict=True)
        return [value if keep and total is not None else None for value, keep, total in rows]


def trace_figures(episodes: Sequence[Episode], traces: Sequence[Trace]) -> dict[str, float]:
    """Return figures that, like the reward, reveal a collapsing run: lengths, searches, recall."""
    count, turns = len(episodes), [turn for episode in episodes for turn in episode.turns]
    recalls = [share for share in map(recall, episodes) if share is not None]
    return {
        "cut_share": sum(not trace.whole for trace in traces) / count,
        "own_tokens": sum(sum(trace.own) for trace in traces) / count,
        "told_tokens": sum(len(trace.own) - sum(trace.own) for trace in traces) / count,
        "tool_errors": float(sum(episode.outcome.tool_errors for episode in episodes)),
        "searches_mean": sum(len(episode.steps) for episode in episodes) / count,
        "gold_found": sum(recalls) / max(1, len(recalls)),
        "without_gold": float(count - len(recalls)),
        "answer_words": sum(len((episode.answer or "").split()) for episode in episodes) / count,
        "think_words": sum(len(thoughts(turn.completion).split()) for turn in turns) / count,
        "invalid_share": sum(episode.outcome.malformed for episode in episodes) / max(1, len(turns)),
    }


def reward(prompts: list[str], reward: list[float | None], **_: Any) -> list[float | None]:
    """Return the game's rewards; TRL normalises them within each group."""
    return reward


class AgentCallback(StepCallback):
    """A step callback that also sets the game's step, drops bad gradients, and stops a collapsed run."""

    def __init__(self, params: AgentParams, game: RolloutFunction, learning: Learning, log: Log) -> None:
        every, updates = params.checkpoints.every, params.num_iterations
        greedy = LocalGenerator(
            game.language_model,
            temperature=0.0,
            max_tokens=params.max_tokens,
            batch_size=params.sampled_at_once,
            seed=game.seed,
        )
        generator = SharedGenerator(lambda: greedy) if distributed.count() > 1 else greedy
        super().__init__(
            learning,
            params.steps,
            game.seed,
            log,
            desc="train",
            figures=self.row,
            every=every,
            updates=updates,
            validation=Validation.of(params.validation.every, game.setup, log, generator),
        )
        self.params, self.game, self.skipped = params, game, 0
        self.stopped = self.find_stop_reason()

    def find_stop_reason(self) -> str:
        """Return why the run must stop; "" while it may continue."""
        return find_stop_reason(self.learning.history, self.params.checkpoints.window, self.params.checkpoints.drop)

    def best(self) -> int:
        """Return the step of the best checkpoint."""
        return find_best_checkpoint(self.params, self.learning.history, self.learning.checkpoints.steps())

    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Stop here if requested; otherwise set the game's step."""
        super().on_step_begin(args, state, control, **rest)
        if state.global_step % self.updates == 0:
            self.game.step, self.skipped = self.step, 0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Drop and count a non-finite gradient, with which TRL would ruin the weights."""
        groups = self.learning.optimizer.param_groups
        weights = [weight for group in groups for weight in group["params"] if weight.grad is not None]
        if weights and not bool(torch.stack([weight.grad.isfinite().all() for weight in weights]).all()):
            self.skipped += 1
            for weight in weights:
                weight.grad = None

    def row(self, logs: Mapping[str, float]) -> dict[str, Any]:
        """Return the figures of the game and of the last update."""
        figures = rename_figures(logs, FIGURES)
        self.whole = False  # a step on another model's samples is not saved
        check_gap(figures)
        self.whole = True
        figures["grad_norm"] = grad_norm if math.isfinite(grad_norm := figures.get("grad_norm", 0.0)) else 0.0
        return {**self.game.figures, **figures, "skipped_updates": float(self.skipped)}

    def report(self, row: Mapping[str, Any]) -> None:
        """Log a step's figures, show its reward on the progress bar, and check whether the run has collapsed."""
        if self.main:
            self.log(self.step, plain_figures(row))
        self.progress.set_postfix(reward=f"{row['reward_mean']:.3f}", refresh=False)
        self.stopped = self.find_stop_reason()


def train(params: AgentParams, setup: Setup, out: Path, work: Path, log: Log, seed: int) -> list[dict[str, float]]:
    """Train the language model of ``setup`` and write its weights to ``out``; the retriever does not change.

    A killed run resumes after its last checkpoint and ends with the same weights: a step's questions and a
    completion's random numbers follow from seed and step. With vLLM the completions differ after a resumption.

    Returns:
        One row per step: reward, its spread, lengths, searches, loss, entropy, seconds.

    Raises:
        CorpusError: there is no question. ModelError: the model cannot be loaded or trained.
        ParamsError: a server of ``train.server`` does not accept LoRA adapters.
        ServiceUnavailable: vLLM, the retriever or the judge cannot be reached; all finished steps are kept.
    """
    params = resolve_precision(params)
    if not setup.questions:
        raise CorpusError("data/filtered/questions.jsonl holds no question; widen filter.target or check the filter")
    check_processes(params)
    base, tokenizer = load_model(
        setup.language_model, params.quantization, chat_template_kwargs=setup.chat_template_kwargs
    )
    model = begin(base, params.lora, seed)
    weights = list(trained_weights(model).values())
    distributed.shard(model, weights)
    optimizer = torch.optim.AdamW(weights, **params.optimizer.adamw)
    run = {"kind": "agent", "params": params.model_dump(), "setup": setup.identity, "seed": seed}
    checkpoints = Checkpoints(work / fingerprint(run))
    learning = Learning(model, tokenizer, optimizer, checkpoints)
    distributed.check_same_step(len(learning.history), checkpoints.folder)
    game = RolloutFunction(params, setup, LanguageModel(model, tokenizer, name=setup.language_model), seed)
    callback = AgentCallback(params, game, learning, log)
    if callback.stopped or callback.done == params.steps:
        callback.close()
        learning.restore()
    else:
        # rollout_func is the only experimental TRL feature that we use
        with patch_environment(TRL_EXPERIMENTAL_SILENCE="1", ACCELERATE_USE_FSDP="false"):
            trainer = open_trainer(
                AgentTrainer,
                callback,
                lambda step: rate_share(params, step),
                args=trl_config(params, checkpoints.folder / "trl", params.steps - callback.done, seed),
                reward_funcs=[reward],
                train_dataset=Dataset.from_dict({"prompt": question_ids(params, setup.questions, callback.done, seed)}),
                rollout_func=game,
            )
        attach_vllm(trainer, params, game.language_model, checkpoints.folder)
        skip_padding(base)
        skip_padding(trainer.ref_model)
        run_trl(trainer, callback)
    distributed.main_process_only(lambda: finish(callback, setup.language_model, out))
    return learning.history


def finish(callback: AgentCallback, base: str, out: Path) -> None:
    """Publish the last step's weights, or the best ones: by validation, or by reward if the run has collapsed."""
    learning, best = callback.learning, callback.best()
    if callback.stopped:
        done = len(learning.history)
        print(f"train stopped after step {done}: {callback.stopped}; keeping the checkpoint of step {best}")
    point = choose_point(callback.params, learning.history)
    if callback.stopped or point:
        learning.checkpoints.load_best(learning.model, None, best)
    note_published(learning.checkpoints.folder)
    with draft(learning.checkpoints.folder / "adapter", out) as folder:
        save_language_model(learning.model, learning.tokenizer, folder, base)
        if point:
            write_json(folder / "harr.json", read_json(folder / "harr.json") | checkpoint_facts(point))


def check_processes(params: AgentParams) -> None:
    """Refuse settings that do not work with several processes.

    Raises:
        ParamsError: the model would be sharded, or the passes cannot be distributed evenly.
    """
    if not params.server or params.validation.every or params.quantization != "none":
        unless = ", or FSDP with train.server, validation.every: 0 and quantization: none"
        distributed.refuse_shards("agent", unless)
    episodes, count = params.questions_per_step * params.group_size, distributed.count()
    if episodes % (params.episodes_per_pass * count):
        raise ParamsError(
            f"{episodes} episodes of a step are no whole passes of {params.episodes_per_pass} in each of {count} "
            f"processes; set train.episodes_per_pass to a divisor of {episodes // count}"
            if episodes % count == 0
            else f"{episodes} episodes of a step cannot be dealt out to {count} processes; change their number, "
            "train.questions_per_step or train.group_size"
        )


def question_ids(params: AgentParams, questions: Sequence[Question], start: int, seed: int) -> list[str]:
    """Return the ids of all steps' questions from ``start`` on, in order."""
    ids = []
    for step in range(start, params.steps):
        ids += [question.id for question in draw_rows(questions, params.questions_per_step, seed, step)]
    return ids


def trl_config(params: AgentParams, folder: Path, steps: int, seed: int) -> GRPOConfig:
    """Return our parameters as TRL's; TRL itself writes nothing."""
    episodes = params.questions_per_step * params.group_size
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=steps * params.num_iterations,
        per_device_train_batch_size=params.episodes_per_pass,
        gradient_accumulation_steps=episodes // params.episodes_per_pass // distributed.count(),
        num_generations=params.group_size,
        num_iterations=params.num_iterations,
        learning_rate=params.optimizer.learning_rate,
        max_grad_norm=params.optimizer.max_grad_norm,
        loss_type=params.loss,
        scale_rewards=params.scale,
        epsilon=params.clip[0],
        epsilon_high=params.clip[1],
        beta=params.kl_weight,
        temperature=params.temperature,
        max_completion_length=params.max_tokens,
        bf16=params.optimizer.precision == "bfloat16",
        fp16=params.optimizer.precision == "float16",
        use_cpu=not torch.cuda.is_available(),
        **dict[str, Any]({CHECKPOINTING: params.optimizer.gradient_checkpointing}),
        # per token: the product over an episode, TRL's default, drops long episodes merely for rounding errors
        vllm_importance_sampling_mode="token_truncate",
        vllm_importance_sampling_clip_max=CAP,
        shuffle_dataset=False,
        seed=seed,
        **QUIET,
    )
