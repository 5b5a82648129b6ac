"""LeReT: a language model learns which queries find more (arXiv 2410.23214), by TRL: SFT, then IPO.

SFT imitates the best query of every prompt, so the model writes such queries without demonstrations (context
distillation). IPO (arXiv 2310.12036) then raises better queries over worse ones, relative to the SFT model. Prompts are
tokenized as in play; nothing is ever truncated.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from trl.trainer.dpo_config import DPOConfig

from harr.compute import distributed
from harr.compute.checkpoints import Checkpoints
from harr.compute.tensors import trained_weights
from harr.compute.trl import (
    Learning,
    StepCallback,
    Tokens,
    open_trainer,
    order_rows,
    rename_figures,
    row_settings,
    run_sft,
    run_trl,
)
from harr.errors import CorpusError, NoPreference, ParamsError
from harr.io.files import draft, fingerprint, note_published, read_json, sha256, write_json
from harr.params.train import LeReTParams
from harr.preferences.collect import check_index, check_repeatable, read_preferences, sample_again
from harr.rag.generation.adapter import base_identity, begin, save_language_model
from harr.rag.generation.local_model import LanguageModel, LocalGenerator, load_model
from harr.rag.generation.sampler import Samplers
from harr.rag.generation.shared import SharedGenerator
from harr.rag.pipelines.leret import RAW, completion_text, request
from harr.rag.setup import Setup
from harr.rag.validation import Validation, best_point, checkpoint_facts
from harr.train.guard import choose_point
from harr.train.ipo import FIGURES, IPOTrainer, Pair
from harr.types import Log

Rows = Sequence[Mapping[str, Any]]
AT_ONCE = 64
"""Number of queries sampled at a time in validation."""


def train(params: LeReTParams, setup: Setup, out: Path, work: Path, log: Log, seed: int) -> list[dict[str, float]]:
    """Train the language model of ``setup`` on its questions' preferences, and write it to ``out``.

    ``out/sft`` is the whole model after SFT, the base of a LoRA in ``out``. From the second iteration on, the trained
    model samples the same questions again, with the same held-out ones. If its queries no longer differ, the previous
    iteration's model is kept. A killed run resumes after its last checkpoint and ends with the same weights.

    Returns:
        One row per update: loss, accuracy (also as ``reward_mean``), and for IPO beta, margin and log-probabilities.

    Raises:
        CorpusError: no preferences. IndexMismatch: they were sampled with another index. ModelError: the model cannot
            be loaded. ParamsError: this run does not work with several processes.
    """
    check_processes(params)
    assert setup.data is not None
    check_index(setup.data, setup.index)
    if params.iterations > 1:
        check_repeatable(setup.data)
    data = {
        name: sha256(setup.data / name)
        for name in ("preferences.jsonl", "prompts.json", "held_out.jsonl")
        if (setup.data / name).exists()
    }
    run = {"kind": "leret", "params": params.model_dump(), "setup": setup.identity, "data": data, "seed": seed}
    folder = work / fingerprint(run)
    history: list[dict[str, float]] = []
    base, data_folder, done = setup.language_model, setup.data, 0
    for iteration in range(params.iterations):
        part = folder / str(iteration)
        if iteration:
            base = _merge_iteration(folder / str(iteration - 1))
            try:
                data_folder = _sample_again(params, setup, base, part, seed * 1_000_003 + iteration)
            except NoPreference as error:
                reason = str(error).partition(";")[0]
                print(f"iteration {iteration + 1}: {reason}; keeping the model of iteration {iteration}")
                break
        trainer = _Iteration(params, setup, read_preferences(data_folder), part, log, seed)
        phases: tuple[Callable[[], list[dict[str, float]]], ...] = (partial(trainer.imitate, base), trainer.prefer)
        for number, phase in enumerate(phases):
            trainer.done = len(history)
            for row in phase():
                more = {"step": len(history), "phase": float(2 * iteration + number), "zero_std_share": 0.0}
                history.append({**row, **more, "reward_mean": row["accuracy"]})
        done = iteration
    last_rows = [row for row in history if row["phase"] == 2.0 * done + 1]
    point = best_point(last_rows) if params.validation.keep == "best" else {}
    facts = checkpoint_facts(point) if point else {}
    distributed.main_process_only(lambda: _export(params, folder, folder / str(done), setup.language_model, out, facts))
    return history


def check_processes(params: LeReTParams) -> None:
    """Refuse settings that do not work with several processes: each takes whole passes of every update.

    Raises:
        ParamsError: the model would be sharded, passes cannot be distributed, or queries would be sampled again.
    """
    distributed.refuse_shards("leret")
    count = distributed.count()
    if count > 1 and params.iterations > 1:
        raise ParamsError("train.iterations above 1 samples again, in one process; run it without accelerate launch")
    for name in ("sft_batch", "ipo_batch"):
        if (size := getattr(params, name)) % (params.rows_per_pass * count):
            raise ParamsError(
                f"train.{name} {size} is no whole passes of {params.rows_per_pass} in each of {count} processes; set "
                f"train.rows_per_pass to a divisor of {size // count}"
                if size % count == 0
                else f"train.{name} {size} cannot be dealt out to {count} processes; change it, or their number"
            )


class _Iteration:
    """SFT and IPO on one set of preferences; finished phases are stored in ``folder``."""

    done = 0
    """Number of updates before the current phase."""

    def __init__(self, params: LeReTParams, setup: Setup, rows: Rows, folder: Path, log: Log, seed: int) -> None:
        self.params, self.setup, self.folder, self.log, self.seed = params, setup, folder, log, seed
        self.template = setup.pipeline.template  # type: ignore[attr-defined]
        self.rows = {split: [row for row in rows if row["split"] == split] for split in ("train", "held_out")}
        if not self.rows["train"]:
            raise CorpusError(f"{setup.data} holds no preferences to learn; run `dvc repro filter`")

    def imitate(self, base: str) -> list[dict[str, float]]:
        """Run SFT on the model ``base``; write the whole model to ``folder/sft``."""
        params, finished = self.params, self.folder / "sft"
        checkpoints = Checkpoints(self.folder / "sft-run")
        if distributed.main_process_only(finished.exists):
            return checkpoints.history()
        loaded_model, tokenizer = load_model(base, chat_template_kwargs=self.setup.chat_template_kwargs)
        language_model, precision = LanguageModel(loaded_model, tokenizer, name=base), loaded_model.dtype
        rows = targets(language_model, self.rows["train"], self.template)
        steps = -(-len(rows) * params.sft_epochs // params.sft_batch)
        learning = self._learning(loaded_model, tokenizer, checkpoints, params.sft_learning_rate)
        callback = self._callback(learning, steps, desc="SFT")
        run_sft(rows, callback, self._rate_share, params, params.sft_batch, **self._rates(params.sft_learning_rate))
        callback.restore_best()
        model = learning.model.eval()
        whole = model.merge_and_unload() if params.lora else model.to(precision)
        _publish(whole, tokenizer, self.folder / "sft.draft", finished)
        return learning.history

    def prefer(self) -> list[dict[str, float]]:
        """Run IPO from ``folder/sft``; write a LoRA or the whole model to ``folder/ipo``."""
        params, finished, base = self.params, self.folder / "ipo", str(self.folder / "sft")
        checkpoints = Checkpoints(self.folder / "ipo-run")
        if distributed.main_process_only(finished.exists):
            return _add_held_out(checkpoints.history(), self.folder)
        loaded_model, tokenizer = load_model(base, chat_template_kwargs=self.setup.chat_template_kwargs)
        language_model = LanguageModel(loaded_model, tokenizer, name=base)
        rows = {split: pairs(language_model, part, self.template) for split, part in self.rows.items()}
        steps = -(-len(rows["train"]) * params.ipo_epochs // params.ipo_batch)
        learning = self._learning(loaded_model, tokenizer, checkpoints, params.ipo_learning_rate)
        beta = 0.5 / params.ipo_target_margin_nats
        callback = self._callback(learning, steps, desc="IPO", figures=partial(ipo_figures, beta=beta))
        settings = row_settings(callback, params, params.ipo_batch, **self._rates(params.ipo_learning_rate))
        places = order_rows(len(rows["train"]), callback.done * params.ipo_batch, steps * params.ipo_batch, self.seed)
        trainer = open_trainer(
            IPOTrainer,
            callback,
            self._rate_share,
            ref_model=None if params.lora else load_model(base)[0].float(),
            args=DPOConfig(loss_type=["ipo"], beta=beta, **settings),
            train_dataset=Dataset.from_list(rows["train"]).select(places or [0]),
        )
        run_trl(trainer, callback)
        callback.restore_best()
        figures = {}
        if rows["held_out"]:
            right = trainer.rank_pairs(rows["held_out"])
            figures = {"held_out_accuracy": sum(right) / len(right), "held_out_pairs": float(len(right))}
        distributed.main_process_only(lambda: write_json(self.folder / "held-out.json", figures))
        _publish(learning.model.eval(), tokenizer, self.folder / "ipo.draft", finished)
        return _add_held_out(learning.history, self.folder)

    def _learning(self, loaded: Any, tokenizer: Any, checkpoints: Checkpoints, rate: float) -> Learning:
        model = begin(loaded, self.params.lora, self.seed)
        optimizer = torch.optim.RMSprop(trained_weights(model).values(), rate)
        learning = Learning(model, tokenizer, optimizer, checkpoints)
        distributed.check_same_step(len(learning.history), checkpoints.folder)
        return learning

    def _callback(self, learning: Learning, steps: int, *, desc: str, **more: Any) -> "_PhaseCallback":
        """Return a phase's callback."""
        params, every = self.params, self.params.validation.every
        validation = None
        if every and self.setup.validation:
            language_model = LanguageModel(learning.model, learning.tokenizer, name=desc)
            greedy = LocalGenerator(
                language_model, temperature=0.0, max_tokens=params.max_tokens, batch_size=AT_ONCE, seed=self.seed
            )
            generator = SharedGenerator(lambda: greedy) if distributed.count() > 1 else greedy
            validation = Validation(self.setup, every, self.log, generator, offset=self.done)
        callback = _PhaseCallback(
            learning, steps, self.seed, self.log, desc=desc, every=every, validation=validation, **more
        )
        callback.params = params
        return callback

    def _rate_share(self, step: float) -> float:
        return min(1.0, (step + 1) / max(1, self.params.warmup_steps))

    def _rates(self, rate: float) -> dict[str, float]:
        return {"learning_rate": rate, "max_grad_norm": self.params.max_grad_norm}


class _PhaseCallback(StepCallback):
    """The callback of SFT or IPO, which may restore the weights with the best validation."""

    params: LeReTParams

    def best(self) -> int:
        """Return the step of the best checkpoint."""
        history = self.learning.history
        point = best_point(history) if self.params.validation.keep == "best" else {}
        return int(point["step"]) if point else len(history)

    def restore_best(self) -> None:
        """Restore the best weights if validation chooses them."""
        if choose_point(self.params, self.learning.history):
            self.learning.checkpoints.load_best(self.learning.model, None, self.best())


def ipo_figures(logs: Mapping[str, float], beta: float) -> dict[str, float]:
    """Return the figures of an IPO update, with its beta and target margin.

    >>> ipo_figures({"loss": 1.0, "margin_nats": 5.0, "epoch": 1.0}, beta=0.05)
    {'loss': 1.0, 'margin_nats': 5.0, 'beta': 0.05, 'target_margin_nats': 10.0}
    """
    names = ("loss", *FIGURES, "grad_norm")
    return rename_figures(logs, dict(zip(names, names, strict=True))) | {"beta": beta, "target_margin_nats": 0.5 / beta}


def targets(language_model: LanguageModel, rows: Rows, template: str) -> list[Tokens]:
    """Return prompts and their best queries as tokens; only the query's tokens are learnt.

    Raises:
        CorpusError: a prompt has no room for its query.
    """
    rows_of_tokens = []
    for row in rows:
        prompt, query = tokens(language_model, row, row["sft_target"], template)
        rows_of_tokens.append((prompt + query, [False] * len(prompt) + [True] * len(query)))
    return rows_of_tokens


def pairs(language_model: LanguageModel, rows: Rows, template: str) -> list[Pair]:
    """Return all pairs of all prompts as tokens."""
    result = []
    for row in rows:
        texts = [tokens(language_model, row, query, template) for query in row["responses"]]
        for better, worse in row["pairs"]:
            result.append({"prompt_ids": texts[0][0], "chosen_ids": texts[better][1], "rejected_ids": texts[worse][1]})
    return result


def tokens(
    language_model: LanguageModel, row: Mapping[str, Any], query: str, template: str
) -> tuple[list[int], list[int]]:
    """Return token ids of a prompt, as in play, and of a query with its end token.

    Raises:
        CorpusError: together they are longer than the model's context.
    """
    prompt = language_model.encode(request(row["prompt"], template))
    ids: list[int] = language_model.tokenizer(completion_text(query, template), add_special_tokens=False)["input_ids"]
    if template not in RAW and language_model.ends:
        eos = language_model.tokenizer.eos_token_id
        ids = [*ids, eos if eos in language_model.ends else min(language_model.ends)]
    if len(prompt) + len(ids) > language_model.room:
        raise CorpusError(
            f"prompt {row['id']} and its query have {len(prompt) + len(ids)} tokens, the model reads "
            f"{language_model.room}; lower pipeline.max_tokens and run `dvc repro filter`"
        )
    return prompt, ids


def _sample_again(params: LeReTParams, setup: Setup, model: str, part: Path, seed: int) -> Path:
    """Sample preferences between queries of ``model``, and return their folder."""
    data = part / "data"
    if not data.exists():
        assert setup.data is not None
        at_once = read_json(setup.data / "manifest.json")["settings"]["sampled_at_once"]
        sample = Samplers(model, max_tokens=params.max_tokens, batch_size=at_once, seed=seed)
        game = replace(setup, identity=fingerprint([setup.identity, base_identity(model)]))
        sample_again(setup.data, game, sample, data, part / "sampling", lambda step, values: None, seed)
    return data


def _merge_iteration(part: Path) -> str:
    """Return the folder of an iteration's final model, merged if it has a LoRA."""
    if not (part / "ipo" / "adapter_config.json").exists():
        return str(part / "ipo")
    if not (part / "merged").exists():
        loaded, tokenizer = load_model(str(part / "sft"))
        model = PeftModel.from_pretrained(loaded, str(part / "ipo")).merge_and_unload()
        with draft(part / "merged.draft", part / "merged") as folder:
            save_language_model(model, tokenizer, folder)
    return str(part / "merged")


def _add_held_out(history: list[dict[str, float]], folder: Path) -> list[dict[str, float]]:
    """Return the history with the held-out pairs' figures in its last row."""
    return [*history[:-1], {**history[-1], **read_json(folder / "held-out.json")}]


def _publish(model: Any, tokenizer: Any, work: Path, out: Path) -> None:
    """Write a phase's final model, in the main process."""

    def write() -> None:
        with draft(work, out) as folder:
            save_language_model(model, tokenizer, folder)

    distributed.main_process_only(write)


def _export(params: LeReTParams, run: Path, part: Path, base_model: str, out: Path, facts: Mapping[str, Any]) -> None:
    """Publish the IPO model together with the SFT model; ``facts`` are further entries of harr.json."""
    note_published(run)
    base = {"base": base_identity(str(part / "sft") if params.lora else base_model)}
    base |= {"beside": "sft"} if params.lora else {}
    with draft(run / "draft", out) as folder:
        shutil.copytree(part / "ipo", folder, dirs_exist_ok=True)
        shutil.copytree(part / "sft", folder / "sft")
        write_json(folder / "harr.json", {"base_model": base_model, **base, "kind": "language_model", **facts})
