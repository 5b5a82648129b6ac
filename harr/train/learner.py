"""What all methods that train the retriever share: weights, optimizer, checkpoints.

Every method has its own loop; a :class:`Learner` numbers its steps, saves, guards, and exports.
"""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import patch_environment
from numpy.typing import NDArray
from peft import PeftModel
from torch import Tensor

from harr.compute import distributed
from harr.compute.attention import prepare_for_bfloat16
from harr.compute.checkpoints import Checkpoints
from harr.compute.precision import halve_frozen, resolve_precision
from harr.embed.encoder import Encoder
from harr.errors import CorpusError, ParamsError
from harr.io.files import draft, fingerprint, note_published, read_json, write_json
from harr.io.progress import bar, should_stop, stoppable
from harr.params.loop import LoopParams
from harr.rag.policies import plackett_luce
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.encoder_adapter import begin, save_adapter
from harr.rag.policies.link_features import LinkFeatures
from harr.rag.policies.two_tower import TwoTowerPolicy
from harr.rag.setup import Setup
from harr.rag.validation import Validation, checkpoint_facts
from harr.train.batch import Batch, StateFeatures, rate_share
from harr.train.guard import choose_point, find_best_checkpoint, find_stop_reason
from harr.train.record import plain_figures
from harr.types import Log

PRECISION = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}


@dataclass
class Learner:
    """The state of one run: the trained ``adapter`` (or the layers) and small ``heads``.

    ``history`` has one row per finished step. Every process has a copy; ``backward`` computes the gradient
    of its share, ``update`` sums them.
    """

    params: LoopParams
    policy: DensePolicy | TwoTowerPolicy
    adapter: torch.nn.Module
    heads: torch.nn.ModuleList | None
    accelerator: Accelerator
    optimizer: Any
    checkpoints: Checkpoints
    history: list[dict[str, Any]]
    setup: Setup
    stopped: str = ""
    saves_when_stopped: bool = True
    """Whether a run may resume at any step, or only at multiples of ``checkpoints.every``."""

    @classmethod
    def open(
        cls,
        params: LoopParams,
        setup: Setup,
        work: Path,
        seed: int,
        *,
        kind: str,
        adapter: torch.nn.Module | None = None,
        head: torch.nn.Module | None = None,
        head_rate: float = 0.0,
    ) -> "Learner":
        """Put a fresh adapter on the encoder (or use ``adapter``), then restore the run's last checkpoint.

        A run is identified by a fingerprint of its parameters, game, seed and ``kind``.

        Raises:
            CorpusError: there is no question. ParamsError: float16 without a GPU.
            StaleState: a run's processes do not find the same checkpoint.
        """
        if not setup.questions:
            raise CorpusError(
                "data/filtered/questions.jsonl holds no question; widen filter.target or check the filter"
            )
        params = resolve_precision(params)
        if params.optimizer.precision == "float16" and not torch.cuda.is_available():
            raise ParamsError("train.optimizer.precision: float16 needs a GPU that is visible; use bfloat16")
        policy = setup.policy
        with patch_environment(ACCELERATE_USE_FSDP="false"):  # it would shard trained weights; see distributed.shard
            accelerator = Accelerator(mixed_precision=PRECISION[params.optimizer.precision])
        # One switch for the whole process: an interrupted TRL training leaves it off, and then no optimizer steps.
        accelerator.sync_gradients = True
        adapter = adapter or policy.query_adapter or begin(policy.encoder, params.lora, seed)
        if params.optimizer.precision == "bfloat16":
            for encoder in policy.encoders:
                prepare_for_bfloat16(encoder.model)
                halve_frozen(encoder.model)
        if params.optimizer.gradient_checkpointing:
            for encoder in policy.encoders:
                encoder.recompute()
        trained = [w for w in adapter.parameters() if w.requires_grad]
        side_modules = _side_groups(params, policy, head, head_rate)
        heads = torch.nn.ModuleList(part for part, _ in side_modules) if side_modules else None
        groups = [{"params": trained, "rate": params.optimizer.learning_rate, "warm_rate": params.warm_rate}]
        if policy.frozen and adapter is not policy.query_adapter:
            groups.clear()
        for part, rate in side_modules:  # a warm start does not train the method's own head
            groups.append({"params": list(part.parameters()), "rate": rate, "warm_rate": rate * (part is not head)})
        optimizer = torch.optim.AdamW(groups, **params.optimizer.adamw, fused=True)
        # evaluation_mode: set the precision only, without a wrapper that would itself reduce gradients.
        policy.encoder.model = accelerator.prepare_model(policy.encoder.model, evaluation_mode=True)
        optimizer = accelerator.prepare_optimizer(optimizer)
        distributed.shard(policy.encoder.model, trained)
        run = {"kind": kind, "params": params.model_dump(), "setup": setup.identity, "seed": seed}
        folder = work / fingerprint(run)
        checkpoints = Checkpoints(folder, accelerator.scaler)
        history = checkpoints.load(adapter, heads, [optimizer])
        distributed.check_same_step(len(history), checkpoints.folder)
        return cls(params, policy, adapter, heads, accelerator, optimizer, checkpoints, history, setup)

    def steps(self, log: Log) -> Iterator[int]:
        """Yield the numbers of the remaining steps; after each, ``history`` must have one more row.

        Sets the learning rate, times the step, reports its row to ``log``, plays the validation questions, saves
        checkpoints, and stops a run that has collapsed. Only the main process reports and saves.
        """
        params, start, main = self.params, len(self.history), distributed.is_main()
        steps = params.total_steps
        if start and main:
            print(f"resuming train at step {start}/{steps} ({start / steps:.1%})")
        self.stopped = find_stop_reason(self.history, params.checkpoints.window, params.checkpoints.drop)
        validation = Validation.of(params.validation.every, self.setup, log)
        with bar(total=steps, desc="train", unit="step", initial=start, visible=main) as progress:
            if validation and not start:
                validation.begin()
            for step in stoppable(range(start, 0 if self.stopped else steps)):
                began = time.perf_counter()
                self._set_rates(step)
                yield step
                row = self.history[-1] = {"step": step, **self.history[-1], "seconds": time.perf_counter() - began}
                if main:
                    log(step, plain_figures(row))
                progress.set_postfix(reward=f"{row['reward_mean']:.3f}", refresh=False)
                progress.update()
                self.stopped = find_stop_reason(self.history, params.checkpoints.window, params.checkpoints.drop)
                last = bool(self.stopped) or step + 1 == steps
                if validation:
                    validation.enter(row, last=last)
                is_halted = should_stop() and self.saves_when_stopped
                is_due = last or is_halted or (step + 1) % params.checkpoints.every == 0
                if is_due and main:
                    best = find_best_checkpoint(params, self.history, self.checkpoints.steps())
                    self.checkpoints.save(step + 1, self.adapter, self.heads, [self.optimizer], self.history, best=best)
                if self.stopped:
                    break

    def _set_rates(self, step: int) -> None:
        """Set a step's learning rates; after a warm start the optimizer is reset, as in a new run."""
        params, warm_steps = self.params, self.params.warm_steps
        if warm_steps and step == warm_steps:
            self.optimizer.state.clear()
        kind = "rate" if step >= warm_steps else "warm_rate"
        share = (
            rate_share(params, step - warm_steps)
            if step >= warm_steps
            else min(1.0, (step + 1) / (params.optimizer.warmup_steps + 1))
        )
        for group in self.optimizer.param_groups:
            group["lr"] = group[kind] * share

    def save_copy(self, name: str) -> None:
        """Save a copy of the current adapter; the export contains it in a folder of this name."""
        path = self.checkpoints.folder / name

        def save() -> None:
            with draft(path.with_suffix(".draft"), path) as folder:
                self._save(folder)

        distributed.main_process_only(save)

    def _save(self, folder: Path) -> None:
        """Write the trained weights for evaluation and merge."""
        save_adapter(self.adapter, self.policy.encoder, folder)
        if isinstance(self.policy.link_features, LinkFeatures):
            self.policy.link_features.save(folder)

    def vectors(self, states: Sequence[str]) -> Tensor:
        """Return the states' unit vectors, (U, D), with gradient.

        A process whose share is empty encodes an empty text, so that every process runs the model and has a gradient.
        """
        if not states:
            return self.vectors([""])[:0]
        if self.policy.frozen:
            vectors_UD = torch.from_numpy(self.dense.encode_plainly(states)).to(self.policy.encoder.model.device)
            return self.dense.query_adapter(vectors_UD) if self.dense.query_adapter else vectors_UD
        return self.policy.encoder.forward(states, prompt=self.policy.prompt, max_tokens=self.policy.max_tokens)

    @property
    def dense(self) -> DensePolicy:
        """Return the policy for a method that chooses among the index's passages."""
        return cast(DensePolicy, self.policy)

    def logits(self, rows: Batch) -> Tensor:
        """Return the stored pools' logits under the current encoder, (B, N), with gradient."""
        return self.dense.logits(self.vectors(rows.states), rows.state_of_B, rows.pool_BN, rows.features_BNF)

    def term(self, features: StateFeatures, states: Sequence[str], rows_UN: NDArray[np.int64]) -> Tensor | float:
        """Return the link term of each state's candidates, (U, N), with gradient; 0 without one. Unknown
        candidates score 0."""
        link_term = self.policy.link_features
        if not isinstance(link_term, LinkFeatures) or not features:
            return 0.0
        width = len(link_term.weights)
        features_UNF = np.zeros((*rows_UN.shape, width), dtype=np.float32)
        for state, row_N, features_NF in zip(states, rows_UN.tolist(), features_UNF, strict=True):
            for place, row in enumerate(row_N):
                features_NF[place] = features[state].get(row, 0.0)
        return cast(Tensor, link_term(torch.from_numpy(features_UNF).to(link_term.weights)))

    def reference(self, rows: Batch) -> Tensor:
        """Return the choices' log-probabilities under the base encoder alone, (B,), without gradient."""
        with torch.no_grad(), cast(PeftModel, self.adapter).disable_adapter():
            logits_BN = self.dense.logits(self.vectors(rows.states), rows.state_of_B, rows.pool_BN)
            return plackett_luce.log_prob(logits_BN, rows.chosen_B, rows.kept_B)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of one pass."""
        self.accelerator.backward(loss)

    def gradient(self) -> Tensor:
        """Return the accumulated gradient of all trained weights as one vector, without the float16 loss scale."""
        weights = [w for group in self.optimizer.param_groups for w in group["params"]]
        gradient = torch.cat([w.grad.flatten() for w in weights if w.grad is not None])
        scaler = self.accelerator.scaler
        return gradient / scaler.get_scale() if scaler else gradient

    def update(self, halves: Sequence[Tensor] = ()) -> dict[str, float]:
        """Step the optimizer once; a non-finite gradient is skipped and counted.

        ``halves``: the gradients of two halves of the batch. Their squared distance estimates the
        variance of the whole gradient; divided by its squared norm it is ``gradient_noise`` (1: only noise).
        """
        weights = [w for group in self.optimizer.param_groups for w in group["params"]]
        distributed.sum_gradients(weights)
        norm = float(self.accelerator.clip_grad_norm_(weights, self.params.optimizer.max_grad_norm))
        finite = bool(torch.isfinite(torch.tensor(norm)))
        if finite or self.accelerator.scaler is not None:  # a scaler skips the step itself, and lowers its scale
            self.optimizer.step()
        figures = {"grad_norm": norm if finite else 0.0, "skipped_updates": float(not finite)}
        if len(halves) == 2 and finite:
            first, second = (distributed.sum_processes(half) for half in halves)
            variance = float((first - second).square().sum())
            norm_squared = float((first + second).square().sum())
            figures |= {"gradient_variance": variance, "gradient_noise": variance / max(norm_squared, 1e-30)}
        return figures

    def export(
        self, out: Path, also: Mapping[str, tuple[torch.nn.Module, Encoder]] = {}, facts: Mapping[str, Any] = {}
    ) -> list[dict[str, Any]]:
        """Write the last adapter, or the best by validation (``keep: best``) or after a collapse; return the history.


        ``also``: further adapters with their encoders, by the name of their folder in ``out``. ``facts``: further
        entries of harr.json.
        """
        distributed.main_process_only(lambda: self._export(out, also, facts))
        return self.history

    def _export(self, out: Path, also: Mapping[str, tuple[torch.nn.Module, Encoder]], facts: Mapping[str, Any]) -> None:
        best = find_best_checkpoint(self.params, self.history, self.checkpoints.steps())
        if self.stopped:
            done = len(self.history)
            print(f"train stopped after step {done}: {self.stopped}; keeping the checkpoint of step {best}")
        if point := choose_point(self.params, self.history):
            facts = {**facts, **checkpoint_facts(point)}
        if self.stopped or point:
            self.checkpoints.load_best(self.adapter, self.heads, best)
        with draft(self.checkpoints.folder / "adapter", out) as folder:
            self._save(folder)
            for name, (adapter, encoder) in also.items():
                save_adapter(adapter, encoder, folder / name)
            for name in self.params.leaves:
                if (copy := self.checkpoints.folder / name).is_dir():  # a run may have stopped earlier
                    shutil.copytree(copy, folder / name)
            for place in (folder, *(folder / name for name in also)):
                write_json(place / "harr.json", {**read_json(place / "harr.json"), **facts})
            note_published(self.checkpoints.folder)


def _side_groups(
    params: LoopParams, policy: DensePolicy | TwoTowerPolicy, head: torch.nn.Module | None, head_rate: float
) -> list[tuple[torch.nn.Module, float]]:
    """Return the other trained modules with their rates: the method's ``head`` and the policy's link features."""
    parts = ((head, head_rate), (policy.link_features, getattr(params, "link_rate", 0.0)))
    device = policy.encoder.model.device
    return [(part.to(device), rate) for part, rate in parts if isinstance(part, torch.nn.Module)]
