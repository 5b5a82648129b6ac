"""Stage merge where the language model learns: fold the adapter into it and save a stock transformers folder."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor

from harr.errors import ModelError
from harr.io.files import draft, read_json, write_json, write_text
from harr.merge.card import HERE, LLM_USAGE, model_card
from harr.merge.retriever import PROBES
from harr.rag.generation.llm_adapter import base_identity, save_llm
from harr.rag.generation.local_model import load_model

TOKENS = 128
"""Number of tokens of every probe that are read."""
BOUND = {torch.float32: 1e-3}
"""How far a logit may move by merging; ``ROUNDED`` where weights have half the bits."""
ROUNDED = 0.5


def merge_llm(
    trained: Path,
    out: Path,
    work: Path,
    *,
    facts: Mapping[str, str],
    training: Mapping[str, str] | None = None,
    base: str = "",
) -> dict[str, float]:
    """Merge the adapter ``trained`` into its base, or take a whole model as it is, and publish the folder ``out``.

    ``base``: that model by its path or cached hub name; empty: what harr.json beside the adapter names.

    Its harr.json holds the ``facts``, and under ``training`` what a card may say of that.
    The folder is reloaded from disk and its logits on probe texts are compared with the adapter's before it appears.

    Returns:
        The largest and the mean difference of a logit, and the number of probes.

    Raises:
        ModelError: the adapter does not fit its base, or the reloaded model disagrees with it.
    """
    model, tokenizer = load_model(str(trained), base=base)
    wanted = _logits(model, tokenizer)
    if isinstance(model, PeftModel):
        model = model.merge_and_unload()
    bound = BOUND.get(model.dtype, ROUNDED)
    with draft(work / "llm", out) as folder:
        save_llm(model, tokenizer, folder)
        del model  # before the next one comes: there may be room for one only
        named = {"base_model": base, "base": base_identity(base), "kind": "llm"}
        known = {**(named if base else read_json(trained / "harr.json")), **facts}
        known.pop("beside", None)
        did = "It was trained by reward in a pipeline that searches; its base is"
        what = f"{'It is an adapter merged into' if base else did} {known['base_model']}."
        title = "A merged language model" if base else "A language model trained by harr to search and to answer"
        card = model_card("llm", known, title=title, what=what, use=LLM_USAGE.format(name=HERE))
        write_text(folder / "README.md", card)
        write_json(folder / "harr.json", {**known, "training": dict(training)} if training else known)
        found = _logits(*load_model(str(folder)))
        differences = torch.cat([(one - two).abs().flatten() for one, two in zip(wanted, found, strict=True)])
        largest = float(differences.max())
        if not largest <= bound:
            raise ModelError(
                f"merged model differs from its adapter: a logit by {largest:.6f}, at most {bound} is wanted; nothing "
                f"was written; check that {known['base_model']} is the model that was trained, or run "
                "`dvc repro -f -s train`"
            )
    return {
        "probes": float(len(wanted)),
        "logit_difference_max": largest,
        "logit_difference_mean": float(differences.mean()),
    }


def merge_by_paths(base: str, adapter: Path, out: Path) -> dict[str, float]:
    """Merge any LoRA of a language model (PEFT) into the ``base`` that is named, and publish the new folder ``out``.

    An adapter of harr's is refused on a base that it was not trained on; of another's nobody can tell.

    Returns:
        As :func:`merge_llm`.

    Raises:
        ModelError: ``out`` exists, the adapter is none of a language model, or what :func:`merge_llm` raises.
    """
    if out.exists():
        raise ModelError(f"--out {out} exists and is left as it is; name another folder")
    config = adapter / "adapter_config.json"
    if not config.is_file():
        raise ModelError(f"--adapter {adapter} holds no adapter_config.json; name a folder that PEFT saved")
    if (task := read_json(config).get("task_type")) not in (None, "CAUSAL_LM"):
        raise ModelError(f"--adapter {adapter} is for task_type {task}, not CAUSAL_LM: no language model")
    work = out.with_name(f".{out.name}.work")
    try:
        return merge_llm(adapter, out, work, facts={}, base=base)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@torch.inference_mode()
def _logits(model: Any, tokenizer: Any) -> list[Tensor]:
    """Return logits (T, V) of every probe, in 32 bits."""
    probes = [tokenizer(text)["input_ids"][:TOKENS] for text in PROBES]
    return [model(torch.tensor([ids], device=model.device)).logits[0].float().cpu() for ids in probes]
