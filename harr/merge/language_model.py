"""Stage merge for a language model: fold the adapter into it and save a stock transformers folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor

from harr.errors import ModelError
from harr.io.files import draft, read_json, write_json, write_text
from harr.merge.card import HERE, LANGUAGE_MODEL_USAGE, model_card
from harr.merge.retriever import PROBES
from harr.rag.generation.adapter import save_language_model
from harr.rag.generation.local_model import load_model

TOKENS = 128
"""Maximum number of tokens in a probe."""
BOUND = {torch.float32: 1e-3}
"""Maximum change of a logit by merging; ``ROUNDED`` for 16-bit weights."""
ROUNDED = 0.5


def merge_language_model(
    trained: Path,
    out: Path,
    work: Path,
    *,
    facts: Mapping[str, str],
    training: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Merge the adapter ``trained`` into its base, or copy a whole model, and publish the folder ``out``.

    Its harr.json has the ``facts``, and under ``training`` the facts for a card. Before publication the folder is
    reloaded from disk and its logits on probe texts are compared with the adapter's.

    Returns:
        The maximum and mean logit difference, and the number of probes.

    Raises:
        ModelError: the adapter does not fit its base, or the reloaded model disagrees with it.
    """
    model, tokenizer = load_model(str(trained))
    if model.device.type == "cpu":  # 16-bit products have larger rounding errors than merging
        model = model.float()
    expected = _logits(model, tokenizer)
    if isinstance(model, PeftModel):
        model = model.merge_and_unload()
    bound = BOUND.get(model.dtype, ROUNDED)
    with draft(work / "language_model", out) as folder:
        save_language_model(model, tokenizer, folder)
        del model  # before the next one is loaded: there may be room for only one
        harr_json = {**read_json(trained / "harr.json"), **facts}
        harr_json.pop("beside", None)
        what = f"It was trained by reward in a pipeline that searches; its base is {harr_json['base_model']}."
        title = "A language model trained by harr to search and to answer"
        card = model_card(
            "language_model", harr_json, title=title, what=what, use=LANGUAGE_MODEL_USAGE.format(name=HERE)
        )
        write_text(folder / "README.md", card)
        write_json(folder / "harr.json", {**harr_json, "training": dict(training)} if training else harr_json)
        merged = _logits(*load_model(str(folder)))
        differences = torch.cat([(a - b).abs().flatten() for a, b in zip(expected, merged, strict=True)])
        largest = float(differences.max())
        if not largest <= bound:
            raise ModelError(
                f"merged model differs from its adapter: a logit by {largest:.6f}, at most {bound} is wanted; nothing "
                f"was written; check that {harr_json['base_model']} is the model that was trained, or run "
                "`dvc repro -f -s train`"
            )
    return {
        "probes": float(len(expected)),
        "logit_difference_max": largest,
        "logit_difference_mean": float(differences.mean()),
    }


@torch.inference_mode()
def _logits(model: Any, tokenizer: Any) -> list[Tensor]:
    """Return every probe's logits, (T, V), in float32."""
    probes = [tokenizer(text)["input_ids"][:TOKENS] for text in PROBES]
    return [model(torch.tensor([ids], device=model.device)).logits[0].float().cpu() for ids in probes]
