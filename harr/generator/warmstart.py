"""A warm start: a language model learns from demonstrations before it learns from rewards (SFT, by TRL).

TRL provides the loss and the loop; only the tokens that the model must write have a loss.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from harr.compute.checkpoints import Checkpoints
from harr.compute.tensors import trained_weights
from harr.compute.trl import Learning, StepCallback, Tokens, run_sft
from harr.errors import CorpusError
from harr.generator.demonstrations import encode_rows, make_demonstrations, read_demonstrations
from harr.io.files import draft, fingerprint, note_published
from harr.io.jsonl import Row
from harr.params.fields import is_dotted
from harr.params.generator import LocalParams
from harr.rag.generation.adapter import base_identity, begin, save_language_model
from harr.rag.generation.local_model import LanguageModel, load_model
from harr.types import Log

WARMUP = 0.05
"""Share of the updates during which the learning rate rises."""


def train_warmstart(
    section: LocalParams, out: Path, work: Path, log: Log, seed: int, readings: Sequence[Mapping[str, Any]] = ()
) -> dict[str, float]:
    """Train ``section.model`` on demonstrations, merge its LoRA, and publish the whole model in the folder ``out``.

    ``readings``, if given, are the demonstrations (:mod:`harr.generator.readings`). A killed run resumes after its last
    checkpoint and ends with the same weights.

    Returns:
        The numbers of demonstrations, of those too long, of all tokens and of those with a loss; loss and token
        accuracy in the first and the last tenth of the updates; seconds.

    Raises:
        CorpusError: the demonstrations are missing, malformed, or all too long. ModelError: the model cannot be loaded.
    """
    params, name, template = section.warmstart, section.model, section.chat_template_kwargs
    assert params
    loaded, tokenizer = load_model(name, chat_template_kwargs=template)
    language_model, precision = LanguageModel(loaded, tokenizer, name=name), loaded.dtype
    if readings:
        rows = encode_rows([Row(values, f"reading {n}") for n, values in enumerate(readings, 1)], language_model)
    elif is_dotted(params.demonstrations):
        rows = make_demonstrations(params, seed, language_model)
    else:
        rows = read_demonstrations(Path(params.demonstrations).expanduser(), language_model)
    usable = _drop_long_rows(rows, min(params.max_length, language_model.room))
    steps = params.steps or -(-len(usable) * params.epochs // params.rows_per_step)
    model = begin(loaded, params.lora, seed)
    optimizer = torch.optim.AdamW(trained_weights(model).values(), params.learning_rate, weight_decay=0.0)
    shape = {"model": name, "template": template, "settings": params.model_dump(exclude={"demonstrations"})}
    run = {"shape": shape, "base": base_identity(name), "rows": fingerprint(usable), "seed": seed}
    checkpoints = Checkpoints(work / fingerprint(run))
    learning = Learning(model, tokenizer, optimizer, checkpoints)
    callback = StepCallback(learning, steps, seed, log, desc="warm start")
    rate = params.learning_rate
    run_sft(usable, callback, lambda step: rate_share(step, steps), params, params.rows_per_step, learning_rate=rate)
    whole = model.merge_and_unload() if params.lora else model.to(precision)
    with draft(checkpoints.folder / "model", out) as folder:
        save_language_model(whole, tokenizer, folder, name)
        note_published(checkpoints.folder)
    return figures(learning.history, usable, len(rows) - len(usable), whole.num_parameters())


def _drop_long_rows(rows: Sequence[Tokens], limit: int) -> list[Tokens]:
    """Return demonstrations of at most ``limit`` tokens; print the number of the others."""
    usable = [row for row in rows if len(row[0]) <= limit]
    if not usable:
        raise CorpusError(
            f"all {len(rows)} demonstrations are longer than {limit} tokens; raise generator.warmstart.max_length, as far as the "
            "model reads"
        )
    if len(usable) < len(rows):
        print(f"{len(rows) - len(usable)} of {len(rows)} demonstrations are longer than {limit} tokens and left out")
    return usable


def rate_share(step: float, steps: int) -> float:
    """Return the share of the learning rate at a step: it rises over the warm-up, then falls evenly.

    >>> [round(rate_share(step, 40), 3) for step in (0, 1, 2, 20, 39)]
    [0.5, 0.975, 0.95, 0.5, 0.025]
    """
    return min((step + 1) / max(1.0, WARMUP * steps), 1.0 - step / steps)


def figures(history: Sequence[Mapping[str, float]], rows: Sequence[Tokens], long: int, size: int) -> dict[str, float]:
    """Return the figures of a run."""
    tenth = -(-len(history) // 10)
    ends = {"first": history[:tenth], "last": history[-tenth:]}
    points = [(name, end) for name in ("loss", "accuracy") for end in ends]
    return {
        "trained": 1.0,
        "steps": float(len(history)),
        "demonstrations": float(len(rows)),
        "too_long": float(long),
        "tokens": float(sum(len(ids) for ids, _ in rows)),
        "own_tokens": float(sum(sum(own) for _, own in rows)),
        "parameters": float(size),
        **{f"{name}_{end}": sum(row[name] for row in ends[end]) / tenth for name, end in points},
        "seconds": sum(row["seconds"] for row in history),
    }
