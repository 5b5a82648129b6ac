"""TRL's training loop with our figures and checkpoints, a clean stop, and the same weights after a kill.

TRL provides the loss and the update. All its trainers here resume from the latest checkpoint and seed every step's
random numbers; a callback logs figures, draws the bar and saves.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from datasets import Dataset
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, TrainerCallback, TrainingArguments
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from harr.compute import distributed
from harr.compute.checkpoints import Checkpoints
from harr.compute.precision import is_fast_bfloat16, multiplies_bfloat16
from harr.errors import HarrError
from harr.io.progress import bar, should_stop, stoppable
from harr.params.generator import WarmstartParams
from harr.params.train import LeReTParams
from harr.types import Log

Tokens = tuple[list[int], list[bool]]
"""Token ids, and which of them the model learns to write."""
SAVE_EVERY = 50
"""Default number of steps between two checkpoints."""
SFT_FIGURES = {"loss": "loss", "mean_token_accuracy": "accuracy", "grad_norm": "grad_norm"}
"""SFT figures in TRL's logs, and their names here."""
CHECKPOINTING = "activation_checkpointing"
"""Name of the setting for gradient checkpointing; transformers 5.19 has the older one."""
if CHECKPOINTING not in TrainingArguments.__dataclass_fields__:
    CHECKPOINTING = "gradient_checkpointing"
QUIET: dict[str, Any] = {
    "disable_tqdm": True,
    "logging_steps": 1,
    "logging_strategy": "steps",
    "save_strategy": "no",
    "report_to": "none",
}
"""Settings with which TRL's trainers pass every update's figures to our callback, and neither print nor save."""


@dataclass
class Learning:
    """A model that TRL trains, with its optimizer, checkpoints, and one row of figures per step so far."""

    model: Any
    tokenizer: Any
    optimizer: torch.optim.Optimizer
    checkpoints: Checkpoints
    history: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.history = self.checkpoints.history()

    def restore(self) -> None:
        """Restore model and optimizer as of the last step in ``history``."""
        self.checkpoints.load(self.model, None, [self.optimizer])

    def save(self, best: int) -> None:
        """Save the state after the last step unless already saved, and keep the checkpoint of step ``best``."""
        done = len(self.history)
        if done and done not in self.checkpoints.steps() and distributed.is_main():
            self.checkpoints.save(done, self.model, None, [self.optimizer], self.history, best=best)


class Between(Protocol):
    """Validation between two steps (:class:`harr.rag.validation.Validation`)."""

    def begin(self) -> None:
        """Play before the first step."""

    def enter(self, row: dict[str, Any], *, last: bool) -> None:
        """Play after the step of ``row``, if it is due, and write the results into the row."""


class StepCallback(TrainerCallback):
    """A callback between two steps of TRL's loop: figures, checkpoints, a bar, and a clean stop.

    Attributes:
        step: the current step, from 0; it consists of ``updates`` TRL updates.
        done: number of steps finished before this call.
        stopped: why the run must stop; "" while it may continue.
        whole: whether the last row is complete, which it is not while validation questions are played.
    """

    def __init__(
        self,
        learning: Learning,
        steps: int,
        seed: int,
        log: Log,
        *,
        desc: str,
        figures: Callable[[Mapping[str, float]], dict[str, Any]] = lambda logs: rename_figures(logs, SFT_FIGURES),
        every: int = 0,
        updates: int = 1,
        validation: Between | None = None,
    ) -> None:
        """Print where a killed run resumes; ``desc`` names it, and ``figures`` turns TRL's logs into a row."""
        self.validation, self.whole = validation, True
        self.learning, self.steps, self.seed, self.log = learning, steps, seed, log
        self.figures, self.every, self.updates = figures, every or SAVE_EVERY, updates
        self.step = self.done = done = len(learning.history)
        self.stopped, self.began, self.main = "", time.perf_counter(), distributed.is_main()
        self._logs: dict[str, float] = {}
        if done and self.main:
            print(f"resuming {desc} at step {done}/{steps} ({done / steps:.1%})")
        self._steps_left = stoppable(range(done, steps))
        self.progress = bar(total=steps, desc=desc, unit="step", initial=done, visible=self.main)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Play the validation questions before the first step."""
        if self.validation and not self.done:
            with eval_mode(self.learning.model):
                self.validation.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop here if requested; otherwise seed the step's random numbers, such as dropout's."""
        if state.global_step % self.updates == 0:
            self.step = next(self._steps_left)
            torch.manual_seed(self.seed * 1_000_003 + self.step)
            self.began = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float] | None = None, **_: Any) -> None:
        """Record a step's figures after its last update, save at intervals, and stop a run that must stop."""
        if not logs or "loss" not in logs:
            return
        self._logs |= logs  # TRL logs sampling with the first update
        if state.global_step % self.updates:
            return
        row = {"step": self.step, **self.figures(self._logs), "seconds": time.perf_counter() - self.began}
        self._logs = {}
        self.learning.history.append(row)
        self.report(row)
        self.progress.update()
        done = self.step + 1
        last = bool(self.stopped) or done == self.steps
        if self.validation:
            self.whole = False
            with eval_mode(self.learning.model):
                self.validation.enter(row, last=last)
            self.whole = True
        if last or should_stop() or done % self.every == 0:
            self.save()
        if self.stopped:
            control.should_training_stop = True

    def report(self, row: Mapping[str, Any]) -> None:
        """Log a step's figures and show them on the bar."""
        if self.main:
            self.log(self.step, {"loss": row["loss"], "accuracy": row["accuracy"]})
        self.progress.set_postfix(loss=f"{row['loss']:.2f}", right=f"{row['accuracy']:.1%}", refresh=False)

    def best(self) -> int:
        """Return the step of the best checkpoint."""
        return len(self.learning.history)

    def save(self) -> None:
        """Save the state after the last step, and keep the best checkpoint."""
        self.learning.save(self.best())

    def close(self) -> None:
        """Close the loop and its bar, even if training was interrupted."""
        self._steps_left.close()
        self.progress.close()


@contextmanager
def eval_mode(model: Any) -> Iterator[None]:
    """Put a training model into eval mode, without dropout."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def rename_figures(logs: Mapping[str, float], names: Mapping[str, str]) -> dict[str, float]:
    """Return TRL's figures that have a name here, by that name.

    >>> rename_figures({"loss": 0.5, "epoch": 1.0}, SFT_FIGURES)
    {'loss': 0.5}
    """
    return {name: float(logs[key]) for key, name in names.items() if key in logs}


def open_trainer(kind: type[Any], callback: StepCallback, rate_share: Callable[[float], float], **options: Any) -> Any:
    """Return a TRL trainer of this ``kind`` for the model of ``callback``.

    ``rate_share`` gives the share of the learning rate at a step, counted over all calls of a run; ``options`` are
    further arguments of the trainer.
    """
    learning = callback.learning
    schedule = LambdaLR(learning.optimizer, lambda update: rate_share(callback.done + update / callback.updates))
    trainer = kind(
        model=learning.model,
        processing_class=learning.tokenizer,
        optimizers=(learning.optimizer, schedule),
        callbacks=[callback],
        **options,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def run_trl(trainer: Any, callback: StepCallback) -> None:
    """Restore the latest checkpoint and run the remaining steps, saving finished ones.

    The checkpoint is loaded after the trainer is made: TRL copies the initial adapter as its reference.
    """
    learning = callback.learning
    learning.checkpoints = replace(learning.checkpoints, scaler=trainer.accelerator.scaler)
    learning.restore()
    try:
        if callback.done < callback.steps:
            trainer.train()
    except HarrError:  # between two updates: an episode could not be played or judged
        if callback.whole:
            callback.save()
        raise
    finally:
        callback.close()


def run_sft(
    rows: Sequence[Tokens],
    callback: StepCallback,
    rate_share: Callable[[float], float],
    params: WarmstartParams | LeReTParams,
    rows_per_step: int,
    **more: Any,
) -> None:
    """Train the model of ``callback`` on ``rows`` by SFT, in epochs with a seeded order.

    For ``params``, ``rows_per_step`` and ``more`` see :func:`row_settings`.
    """
    settings = row_settings(callback, params, rows_per_step, **more)
    places = order_rows(len(rows), callback.done * rows_per_step, callback.steps * rows_per_step, callback.seed)
    trainer = open_trainer(
        SFTTrainer,
        callback,
        rate_share,
        args=SFTConfig(dataset_kwargs={"skip_prepare_dataset": True}, **settings),
        train_dataset=make_dataset(rows, places or [0]),
    )
    run_trl(trainer, callback)


def row_settings(
    callback: StepCallback, params: WarmstartParams | LeReTParams, rows_per_step: int, **more: Any
) -> dict[str, Any]:
    """Return TRL's settings for training on given rows: it does not truncate, shuffle or write."""
    cuda, stored = torch.cuda.is_available(), callback.learning.model.config.dtype
    return {
        "output_dir": str(callback.learning.checkpoints.folder / "trl"),
        "max_steps": max(1, callback.steps - callback.done),
        "max_length": None,
        "per_device_train_batch_size": params.rows_per_pass,
        "gradient_accumulation_steps": rows_per_step // params.rows_per_pass // distributed.count(),
        "train_sampling_strategy": "sequential",
        CHECKPOINTING: params.gradient_checkpointing,
        "bf16": multiplies_bfloat16() if cuda else is_fast_bfloat16(stored),
        "use_cpu": not cuda,
        "seed": callback.seed,
        **QUIET,
        **more,
    }


def order_rows(rows: int, start: int, end: int, seed: int) -> list[int]:
    """Return the rows at places ``start`` to ``end`` of consecutive epochs, each a seeded permutation.

    >>> order_rows(4, 2, 8, seed=0) == order_rows(4, 0, 8, seed=0)[2:], sorted(order_rows(4, 4, 8, seed=0))
    (True, [0, 1, 2, 3])
    """
    epochs = [np.random.default_rng([seed, epoch]).permutation(rows) for epoch in range(-(-end // rows))]
    return np.concatenate(epochs)[start:end].tolist()


def make_dataset(rows: Sequence[Tokens], places: Sequence[int]) -> Dataset:
    """Return the rows in the order of ``places`` in TRL's format; a label of -100 has no loss."""
    labels = [[token if learnt else -100 for token, learnt in zip(ids, flags, strict=True)] for ids, flags in rows]
    return Dataset.from_dict({"input_ids": [ids for ids, _ in rows], "labels": labels}).select(places)
