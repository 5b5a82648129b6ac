"""A warm start: a language model learns from demonstrations before it learns from rewards (SFT, by TRL).

TRL has the loss and the loop; texts come as tokens, of which only those that the model is to write have a loss.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from harr.compute.checkpoints import QUIET, Checkpoints
from harr.compute.tensors import trained_weights
from harr.errors import CorpusError
from harr.generator.demonstrations import Tokens, make_demonstrations, read_demonstrations
from harr.io.files import fingerprint, note_published, publish, write_json
from harr.io.progress import bar, stop_asked, stoppable
from harr.io.resume import unfinished
from harr.params.generator import WarmstartParams
from harr.rag.generation.llm_adapter import base_identity, begin
from harr.rag.generation.local import LanguageModel, load_model
from harr.types import Log

SAVE_EVERY = 50
WARMUP = 0.05
"""Share of the updates in which the learning rate rises."""
UNREAD = {"temperature", "max_tokens", "batch_size"}
"""Parameters of the generator that say how it plays, not what it learns."""


FIGURES = {"loss": "loss", "mean_token_accuracy": "accuracy", "grad_norm": "grad_norm"}
"""What TRL logs, and how we call it."""


class Keeper(TrainerCallback):
    """Between two updates of TRL's loop: figures, checkpoints, and a clean stop.

    ``desc`` names its bar; ``told`` are the figures that TRL logs, by our names; loss and accuracy are logged.
    """

    def __init__(
        self,
        kept: tuple[Any, Any, Checkpoints],
        history: list[dict[str, float]],
        steps: int,
        seed: int,
        log: Log,
        *,
        desc: str = "warm start",
        told: Mapping[str, str] = FIGURES,
    ) -> None:
        self.told = told
        self.model, self.optimizer, self.checkpoints = kept
        self.history, self.total, self.seed, self.log = history, steps, seed, log
        self.step, self.began = len(history), time.perf_counter()
        self.steps = stoppable(range(len(history), steps))
        self.progress = bar(total=steps, desc=desc, unit="step", initial=len(history))

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave here if a stop was asked for."""
        self.step = next(self.steps)
        torch.manual_seed(self.seed * 1_000_003 + self.step)  # some models have dropout
        self.began = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float] | None = None, **_: Any) -> None:
        """After an update: keep its figures, and save now and then."""
        if not logs or "loss" not in logs:
            return
        row = {
            "step": self.step,
            **{name: float(logs[key]) for key, name in self.told.items()},
            "seconds": time.perf_counter() - self.began,
        }
        self.history.append(row)
        self.log(self.step, {"loss": row["loss"], "accuracy": row["accuracy"]})
        self.progress.set_postfix(loss=f"{row['loss']:.2f}", right=f"{row['accuracy']:.1%}", refresh=False)
        self.progress.update()
        done = self.step + 1
        if stop_asked() or done == self.total or done % SAVE_EVERY == 0:
            self.checkpoints.save(done, self.model, None, self.optimizer, self.history, best=done)

    def close(self) -> None:
        """Close the loop and its bar, also of a training that was broken off."""
        self.steps.close()
        self.progress.close()


def train_warmstart(params: WarmstartParams, out: Path, work: Path, log: Log, seed: int) -> dict[str, float]:
    """Teach ``params.model`` by demonstrations, merge its LoRA, and publish the whole model in the folder ``out``.

    A run that was killed goes on after its last checkpoint and ends with the same weights.

    Returns:
        How many demonstrations were learnt from, and how many were too long; their tokens and those with a loss; loss
        and share of tokens guessed right, in the first and the last tenth of the updates; seconds.

    Raises:
        CorpusError: the demonstrations are missing, malformed, or all too long. ModelError: the model cannot be loaded.
    """
    loaded, tokenizer = load_model(params.model)
    writer, precision = LanguageModel(loaded, tokenizer, name=params.model), loaded.dtype
    path = Path(params.demonstrations).expanduser()
    rows = (
        read_demonstrations(path, writer)
        if params.demonstrations
        else make_demonstrations(params.traces, params.template, seed, writer)
    )
    kept = _short_enough(rows, min(params.max_length, writer.room))
    steps = params.steps or -(-len(kept) * params.epochs // params.rows_per_step)
    model = begin(loaded, params.lora, seed)
    optimizer = torch.optim.AdamW(trained_weights(model).values(), params.learning_rate, weight_decay=0.0)
    shape = params.model_dump(exclude=UNREAD | {"demonstrations"})
    base = base_identity(params.model)
    run = {"kind": "warmstart", "shape": shape, "base": base, "rows": fingerprint(kept), "seed": seed}
    checkpoints = Checkpoints(unfinished(work, run))
    history = checkpoints.load(model, None, optimizer)
    if history:
        print(f"resuming the generator at step {len(history)}/{steps}")
    if len(history) < steps:
        keeper = Keeper((model, optimizer, checkpoints), history, steps, seed, log)
        begun = len(history)
        trainer = SFTTrainer(
            model=model,
            processing_class=tokenizer,
            args=trl_config(params, checkpoints.folder / "trl", steps - begun, seed),
            train_dataset=dataset(
                kept, order(len(kept), begun * params.rows_per_step, steps * params.rows_per_step, seed)
            ),
            optimizers=(optimizer, LambdaLR(optimizer, lambda update: rate_share(begun + update, steps))),
            callbacks=[keeper],
        )
        trainer.remove_callback(PrinterCallback)
        with closing(keeper):
            trainer.train()
    whole = model.merge_and_unload() if params.lora else model.to(precision)
    draft = checkpoints.folder / "model"
    shutil.rmtree(draft, ignore_errors=True)
    whole.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    write_json(draft / "harr.json", {"base_model": params.model, "base": base, "kind": "llm"})
    note_published(checkpoints.folder)
    publish(draft, out)
    return figures(history, kept, len(rows) - len(kept), whole.num_parameters())


def _short_enough(rows: Sequence[Tokens], limit: int) -> list[Tokens]:
    """Demonstrations of at most so many tokens; the others are told of, not cut."""
    kept = [row for row in rows if len(row[0]) <= limit]
    if not kept:
        raise CorpusError(
            f"all {len(rows)} demonstrations are longer than {limit} tokens; raise generator.max_length, as far as the "
            "model reads"
        )
    if len(kept) < len(rows):
        print(f"{len(rows) - len(kept)} of {len(rows)} demonstrations are longer than {limit} tokens and left out")
    return kept


def rate_share(step: int, steps: int) -> float:
    """The share of the learning rate at a step: it rises over the warm-up, then falls evenly.

    >>> [round(rate_share(step, 40), 3) for step in (0, 1, 2, 20, 39)]
    [0.5, 0.975, 0.95, 0.5, 0.025]
    """
    return min((step + 1) / max(1.0, WARMUP * steps), 1.0 - step / steps)


def order(rows: int, start: int, end: int, seed: int) -> list[int]:
    """Which demonstration comes at the places ``start`` to ``end``: epochs are seeded permutations laid end to end.

    >>> order(4, 2, 8, seed=0) == order(4, 0, 8, seed=0)[2:], sorted(order(4, 4, 8, seed=0))
    (True, [0, 1, 2, 3])
    """
    epochs = [np.random.default_rng([seed, epoch]).permutation(rows) for epoch in range(-(-end // rows))]
    places: list[int] = np.concatenate(epochs)[start:end].tolist()
    return places


def dataset(rows: Sequence[Tokens], places: Sequence[int]) -> Dataset:
    """The demonstrations in the order that TRL takes them; a label of -100 has no loss."""
    labels = [[token if learnt else -100 for token, learnt in zip(ids, own, strict=True)] for ids, own in rows]
    return Dataset.from_dict({"input_ids": [ids for ids, _ in rows], "labels": labels}).select(places)


def trl_config(params: WarmstartParams, folder: Path, steps: int, seed: int) -> SFTConfig:
    """Our parameters as TRL's; it neither cuts nor shuffles nor writes."""
    cuda = torch.cuda.is_available()
    return SFTConfig(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=params.rows_per_pass,
        gradient_accumulation_steps=params.rows_per_step // params.rows_per_pass,
        learning_rate=params.learning_rate,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        train_sampling_strategy="sequential",
        activation_checkpointing=params.gradient_checkpointing,
        bf16=cuda and torch.cuda.is_bf16_supported(),
        use_cpu=not cuda,
        seed=seed,
        **QUIET,
    )


def figures(history: Sequence[Mapping[str, float]], rows: Sequence[Tokens], long: int, size: int) -> dict[str, float]:
    """A run in a few numbers."""
    tenth = -(-len(history) // 10)
    ends = {"first": history[:tenth], "last": history[-tenth:]}
    return {
        "trained": 1.0,
        "steps": float(len(history)),
        "demonstrations": float(len(rows)),
        "too_long": float(long),
        "tokens": float(sum(len(ids) for ids, _ in rows)),
        "own_tokens": float(sum(sum(own) for _, own in rows)),
        "parameters": float(size),
        **{
            f"{name}_{end}": sum(row[name] for row in part) / tenth
            for name in ("loss", "accuracy")
            for end, part in ends.items()
        },
        "seconds": sum(row["seconds"] for row in history),
    }
