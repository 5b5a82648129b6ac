"""GRPO for the language model that searches and answers, by TRL (arXiv 2402.03300; Search-R1, arXiv 2503.09516).

TRL has the loss and the optimiser; the game is ours: its ``rollout_func`` plays the pipeline with the retriever as
it is. Tokens that the environment put in are attended to and have no loss (``env_mask``). With ``train.vllm`` another
engine samples, whose log-probabilities TRL corrects for by importance sampling.
"""

import inspect
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import patch_environment
from datasets import Dataset
from peft import PeftModel
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from harr.compute import distributed
from harr.compute.checkpoints import QUIET, Checkpoints
from harr.compute.tensors import trained_weights
from harr.errors import CorpusError, HarrError, ParamsError
from harr.io.files import note_published, publish, write_json
from harr.io.progress import bar, stop_asked, stoppable
from harr.io.resume import unfinished
from harr.params.train import AgentParams
from harr.rag.generation.llm_adapter import base_identity, begin
from harr.rag.generation.local import LanguageModel, load_model
from harr.rag.generation.sampler import Sampler, Trace
from harr.rag.pipelines.tags import thoughts
from harr.rag.rollout import play
from harr.rag.scoring import scalarize
from harr.rag.scoring.ranking import recall
from harr.rag.scoring.reward import Scores
from harr.rag.setup import Setup
from harr.train.advantages import all_alike
from harr.train.batch import open_questions, question_batch, rate_share, reward_figures
from harr.train.guard import best_step, verdict
from harr.train.record import plain
from harr.train.vllm import check_vllm, generate_by_vllm, vllm_config, vllm_reached
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
}
"""What TRL logs, and how we call it. The ratio of importance sampling is there only where another engine sampled."""


@dataclass
class Game:
    """What TRL asks for episodes: plays the questions of a step and hands out tokens, rewards and masks.

    TRL deals a step's questions out to the processes. All play all of them side by side, so that the index, the
    judge and every figure are those of the whole step; each hands its own episodes to TRL.
    """

    params: AgentParams
    setup: Setup
    writer: LanguageModel
    seed: int
    step: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    _calls: int = 0
    _vllm: Any = None

    def __post_init__(self) -> None:
        self.writer.room = min(self.writer.room, self.params.vllm_tokens or self.writer.room)

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Episodes of the questions with these ids, groups side by side; lists with an entry an episode."""
        known = {question.id: question for question in self.setup.questions}
        own, prompts = len(prompts), distributed.joined(prompts)  # all processes play all episodes
        self._calls, training = 0, trainer.model.training
        self._vllm = trainer.vllm_generation if self.params.vllm != "none" else None
        trainer.model.eval()
        sampler = Sampler(self.writer, self.generate, max_tokens=self.params.max_tokens)
        episodes = play([known[name] for name in prompts], self.setup.pipeline, self.setup.retriever, sampler)
        trainer.model.train(training)
        first = distributed.number() * own
        rows = self.rows(episodes, sampler).items()
        return {name: values and values[first : first + own] for name, values in rows}

    def generate(self, contexts: Sequence[Sequence[int]], stops: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Sample, in batches; the random numbers of a completion follow from seed, step, call and row.

        Those of vLLM are its own. Of several processes each writes its share.
        """
        self._calls += 1
        return distributed.shared_out(len(contexts), lambda rows: self._write(contexts, stops, rows))

    def _write(
        self, contexts: Sequence[Sequence[int]], stops: Sequence[tuple[str, ...]], rows: Sequence[int]
    ) -> list[list[int]]:
        own = [contexts[row] for row in rows], [stops[row] for row in rows]
        if self._vllm:
            return generate_by_vllm(self._vllm, self.writer, *own)
        return self.writer.generate(
            *own,
            temperature=self.params.temperature,
            keys=[f"{self.seed}/{self.step}/{self._calls}/{row}" for row in rows],
            max_tokens=self.params.max_tokens,
            batch_size=self.params.sampled_at_once,
        )

    def rows(self, episodes: Sequence[Episode], sampler: Sampler) -> dict[str, Any]:
        """Tokens, masks and rewards of played episodes, as TRL takes them.

        None is longer than the model has room for: a prompt that leaves none loses its beginning, and learns nothing.
        """
        traces = [Trace.of(episode) for episode in episodes]
        end, room = sorted(self.writer.ends)[:1], self.writer.room
        for trace in traces:
            if not trace.ids:  # no room to write anything, and TRL takes no empty text
                trace.observe([self.writer.pad])
            elif trace.whole and trace.ids[-1] not in self.writer.ends and len(trace.prompt + trace.ids) < room:
                trace.observe(end)  # TRL takes a text without an end for a cut one
        scores = self.setup.reward.score(episodes)
        rewards = self.setup.reward.totals_or_none(scores, self.step)
        self.figures = reward_figures(self.params, self.setup, scores, rewards, episodes, self.step)
        self.figures |= trace_figures(episodes, traces) | {"without_room": sampler.usage()["without_room"]}
        self.figures["without_reward"] = float(rewards.count(None))
        mixed = self.mixed(scores, rewards)
        self.figures["without_advantage"] = float(all_alike(mixed, self.params.group_size))
        return {
            "prompt_ids": [trace.prompt[-max(1, room - len(trace.ids)) :] for trace in traces],
            "completion_ids": [trace.ids for trace in traces],
            "env_mask": [trace.own for trace in traces],
            "logprobs": [trace.logprobs for trace in traces] if self._vllm else None,
            "reward": mixed,
        }

    def mixed(self, scores: Scores, totals: Sequence[float | None]) -> list[float | None]:
        """The rewards to learn from, by ``reward.mix``.

        None for an episode that ``filter_by_mean`` leaves out, or to which no term applies: it has no gradient.
        """
        reward = self.setup.reward
        table = reward.table(scores, self.step, self.params.group_size)
        rewards = scalarize.combine(*table, reward.mix).flatten().tolist()
        kept = scalarize.consistent(*table).flatten().tolist() if reward.filter_by_mean else [True] * len(rewards)
        return [
            value if keep and total is not None else None
            for value, keep, total in zip(rewards, kept, totals, strict=True)
        ]


def trace_figures(episodes: Sequence[Episode], traces: Sequence[Trace]) -> dict[str, float]:
    """What tells a healthy run from a collapsing one, beside the reward: lengths, searches, what was found."""
    count, turns = len(episodes), [turn for episode in episodes for turn in episode.turns]
    found = [share for share in map(recall, episodes) if share is not None]
    return {
        "cut_share": sum(not trace.whole for trace in traces) / count,
        "own_tokens": sum(sum(trace.own) for trace in traces) / count,
        "told_tokens": sum(len(trace.own) - sum(trace.own) for trace in traces) / count,
        "tool_errors": float(sum(episode.outcome.tool_errors for episode in episodes)),
        "searches_mean": sum(len(episode.steps) for episode in episodes) / count,
        "gold_found": sum(found) / max(1, len(found)),
        "without_gold": float(count - len(found)),
        "answer_words": sum(len((episode.answer or "").split()) for episode in episodes) / count,
        "think_words": sum(len(thoughts(turn.completion).split()) for turn in turns) / count,
        "invalid_share": sum(episode.outcome.malformed for episode in episodes) / max(1, len(turns)),
    }


def reward(prompts: list[str], reward: list[float | None], **_: Any) -> list[float | None]:
    """The reward that the game gave; TRL normalises it within the group."""
    return reward


class Keeper(TrainerCallback):
    """Between two steps of TRL's loop: figures, checkpoints, the guard, and a clean stop."""

    def __init__(
        self, params: AgentParams, game: Game, kept: tuple[Any, Any, Checkpoints], history: list[Any], log: Log
    ) -> None:
        self.params, self.game, self.history, self.log = params, game, history, log
        self.model, self.optimizer, self.checkpoints = kept
        self.stopped, self.began, self.skipped = "", time.perf_counter(), 0
        self.steps = stoppable(range(len(history), params.steps))
        main = distributed.is_main()
        self.progress = bar(total=params.steps, desc="train", unit="step", initial=len(history), shown=main)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave here if a stop was asked for; else tell the game which step it is."""
        if state.global_step % self.params.num_iterations == 0:
            self.game.step = next(self.steps)
            torch.manual_seed(self.game.seed * 1_000_003 + self.game.step)  # TRL shuffles the episodes of a step
            self.began, self.skipped = time.perf_counter(), 0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Drop a gradient that is not finite, which is counted: no update then, where TRL would ruin the weights."""
        weights = [w for group in self.optimizer.param_groups for w in group["params"] if w.grad is not None]
        if weights and not bool(torch.stack([w.grad.isfinite().all() for w in weights]).all()):
            self.skipped += 1
            for weight in weights:
                weight.grad = None

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float] | None = None, **_: Any) -> None:
        """After an update: keep its figures; after the last one of a batch save, and stop a run that has collapsed."""
        if not logs or "loss" not in logs or state.global_step % self.params.num_iterations:
            return
        params, step = self.params, self.game.step
        told = {name: float(logs[key]) for key, name in FIGURES.items() if key in logs}
        told["grad_norm"] = norm if math.isfinite(norm := told.get("grad_norm", 0.0)) else 0.0
        told |= {"skipped_updates": float(self.skipped), "seconds": time.perf_counter() - self.began}
        self.history.append({"step": step, **self.game.figures, **told})
        if distributed.is_main():
            self.log(step, plain(self.history[-1]))
        self.progress.set_postfix(reward=f"{self.history[-1]['reward_mean']:.3f}", refresh=False)
        self.progress.update()
        self.stopped = verdict(self.history, params.guard_window, params.guard_drop)
        last = self.stopped or stop_asked() or step + 1 == params.steps
        if last or (step + 1) % params.checkpoint_every == 0:
            self.save()
        control.should_training_stop = bool(self.stopped)

    def save(self) -> None:
        """Keep the state after the last step, unless that is done, and the best of the checkpoints."""
        done, steps = len(self.history), self.checkpoints.steps()
        if done and done not in steps and distributed.is_main():
            best = best_step(self.history, self.params.guard_window, steps)
            self.checkpoints.save(done, self.model, None, self.optimizer, self.history, best=best)

    def run(self, trainer: GRPOTrainer) -> None:
        """Run TRL's loop and close ours and its bar, however it ends; what is finished is kept."""
        try:
            trainer.train()
        except HarrError:  # between two updates: an episode could not be played or judged
            self.save()
            raise
        finally:
            self.steps.close()
            self.progress.close()


def train(params: AgentParams, setup: Setup, out: Path, work: Path, log: Log, seed: int) -> list[dict[str, float]]:
    """Train the language model of ``setup`` and write what was trained to ``out``; the retriever stays as it is.

    A run that was killed goes on after its last checkpoint and ends with the same weights: the questions of a step
    and the random numbers of a completion follow from seed and step. Where vLLM samples, it goes on as well, but with
    other completions than it would have had.

    Returns:
        One row per step: reward, its spread, lengths, searches, loss, entropy, seconds.

    Raises:
        CorpusError: there is no question. ModelError: the model cannot be loaded or trained.
        ParamsError: ``train.vllm`` cannot be had here.
        ServiceUnavailable: vLLM, the retriever or the judge cannot be reached; all finished steps are kept.
    """
    check_vllm(params)
    if not setup.questions:
        raise CorpusError("data/filtered/questions.jsonl holds no question; widen filter.target or check the filter")
    check_processes(params)
    loaded, tokenizer = load_model(setup.writer, params.quantization)
    model = begin(loaded, params.lora, seed)
    weights = trained_weights(model).values()
    optimizer = torch.optim.AdamW(weights, params.learning_rate, weight_decay=params.weight_decay)
    run = {"kind": "agent", "params": params.model_dump(), "setup": setup.identity, "seed": seed}
    checkpoints = Checkpoints(distributed.only_main(lambda: unfinished(work, run, setup=setup.told)))
    history = checkpoints.history()
    distributed.check_same_step(len(history), checkpoints.folder)
    if history and distributed.is_main():
        print(f"resuming train at step {len(history)}/{params.steps} ({len(history) / params.steps:.1%})")
    game = Game(params, setup, LanguageModel(model, tokenizer, name=setup.writer), seed)
    keeper = Keeper(params, game, (model, optimizer, checkpoints), history, log)
    keeper.stopped = verdict(history, params.guard_window, params.guard_drop)
    if len(history) == params.steps or keeper.stopped:
        checkpoints.load(model, None, optimizer)
    else:
        begun, passes = len(history), params.num_iterations
        # of what is experimental in TRL we use rollout_func alone
        with patch_environment(TRL_EXPERIMENTAL_SILENCE="1"), vllm_reached(params):
            trainer = GRPOTrainer(
                model=model,
                processing_class=tokenizer,
                args=trl_config(params, checkpoints.folder / "trl", params.steps - len(history), seed),
                reward_funcs=[reward],
                train_dataset=Dataset.from_dict({"prompt": asked(params, setup.questions, len(history), seed)}),
                rollout_func=game,
                optimizers=(optimizer, LambdaLR(optimizer, lambda update: rate_share(params, begun + update / passes))),
                callbacks=[keeper],
            )
        trainer.remove_callback(PrinterCallback)
        skip_padding(loaded)
        skip_padding(trainer.ref_model)
        checkpoints.load(model, None, optimizer)  # TRL keeps the adapter as it began: what kl_weight measures from
        keeper.run(trainer)
    distributed.only_main(lambda: finish(keeper, tokenizer, setup.writer, out))
    return history


def skip_padding(model: Any) -> None:
    """Let positions begin at the first token of a text, as when it was sampled: TRL would count the padding before it.

    Where positions are learnt, as in GPT-2, texts would else be read at other positions, or past the last.
    """

    def numbered(module: Any, args: Any, kwargs: Any) -> Any:
        mask = kwargs.get("attention_mask")
        if mask is not None and mask.dim() == 2 and kwargs.get("position_ids") is None:
            kwargs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        return args, kwargs

    if model is not None and "position_ids" in inspect.signature(model.forward).parameters:
        model.register_forward_pre_hook(numbered, with_kwargs=True)


def finish(keeper: Keeper, tokenizer: Any, base: str, out: Path) -> None:
    """Publish the weights of the last step, or of the best one where the run has collapsed."""
    params, history, checkpoints = keeper.params, keeper.history, keeper.checkpoints
    if keeper.stopped:
        best = best_step(history, params.guard_window, checkpoints.steps())
        checkpoints.load_best(keeper.model, None, best)
        print(f"train stopped after step {len(history)}: {keeper.stopped}; keeping the checkpoint of step {best}")
    note_published(checkpoints.folder)
    export(keeper.model, tokenizer, base, checkpoints.folder / "adapter", out)


def check_processes(params: AgentParams) -> None:
    """Refuse what the processes of this run cannot share.

    Raises:
        ParamsError: the model would be cut up, or the passes do not come out even.
    """
    distributed.refuse_shards("agent")
    episodes, count = params.questions_per_step * params.group_size, distributed.count()
    if episodes % (params.episodes_per_pass * count):
        raise ParamsError(
            f"{episodes} episodes of a step are no whole passes of {params.episodes_per_pass} in each of {count} "
            f"processes; set train.episodes_per_pass to a divisor of {episodes // count}"
            if episodes % count == 0
            else f"{episodes} episodes of a step cannot be dealt out to {count} processes; change their number, "
            "train.questions_per_step or train.group_size"
        )


def asked(params: AgentParams, questions: Sequence[Question], start: int, seed: int) -> list[str]:
    """Ids of the questions of all steps from ``start`` on, in order."""
    ids = []
    for step in range(start, params.steps):
        known = open_questions(questions, params.curriculum_stages, step, params.steps)
        ids += [question.id for question in question_batch(known, params.questions_per_step, seed, step)]
    return ids


def trl_config(params: AgentParams, folder: Path, steps: int, seed: int) -> GRPOConfig:
    """Our parameters as TRL's; nothing is written by TRL itself."""
    episodes = params.questions_per_step * params.group_size
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=steps * params.num_iterations,
        per_device_train_batch_size=params.episodes_per_pass,
        gradient_accumulation_steps=episodes // params.episodes_per_pass // distributed.count(),
        num_generations=params.group_size,
        num_iterations=params.num_iterations,
        learning_rate=params.learning_rate,
        max_grad_norm=params.max_grad_norm,
        loss_type=params.loss,
        scale_rewards=params.scale,
        epsilon=params.clip_low,
        epsilon_high=params.clip_high,
        beta=params.kl_weight,
        temperature=params.temperature,
        max_completion_length=params.max_tokens,
        mask_truncated_completions=params.mask_cut,
        activation_checkpointing=params.gradient_checkpointing,
        bf16=params.precision == "bfloat16",
        fp16=params.precision == "float16",
        use_cpu=not torch.cuda.is_available(),
        **vllm_config(params),
        shuffle_dataset=False,
        seed=seed,
        **QUIET,
    )


def export(model: Any, tokenizer: Any, base: str, draft: Path, out: Path) -> None:
    """Publish an adapter as PEFT saves it, or a whole model as transformers does, with its tokenizer and harr.json."""
    shutil.rmtree(draft, ignore_errors=True)
    model.save_pretrained(draft, **({"selected_adapters": ["default"]} if isinstance(model, PeftModel) else {}))
    tokenizer.save_pretrained(draft)
    (draft / "README.md").unlink(missing_ok=True)
    write_json(draft / "harr.json", {"base_model": base, "base": base_identity(base), "kind": "llm"})
    publish(draft, out)
