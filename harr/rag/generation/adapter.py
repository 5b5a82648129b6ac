"""Fine-tuning a language model: its LoRA, and the link between an adapter and its base."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from transformers.utils.hub import cached_file

from harr.compute.tensors import trained_weights
from harr.io.files import write_json
from harr.io.model_folder import language_model_path, settle_adapter
from harr.params.train_facts import LoraParams

BLOCKS, BLOCK = 256, 64 * 1024
"""Number and size (bytes) of the evenly spaced blocks of a large file that are hashed: 16 MiB in all."""


def begin(model: Any, lora: LoraParams | None, seed: int) -> Any:
    """Return the model to train: with a fresh LoRA on all linear layers but the output layer, or with all its weights.

    On a 4-bit base the LoRA is in bfloat16, as published (arXiv 2305.14314); otherwise trained weights are in 32 bits,
    since a bfloat16 weight loses updates smaller than 1/256 of itself.
    """
    from peft import LoraConfig, get_peft_model  # takes a second to import; only training needs it

    if lora is None:
        return model.float()
    torch.manual_seed(seed)
    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    adapted = get_peft_model(model, config)
    if getattr(model, "is_loaded_in_4bit", False):
        for weight in trained_weights(adapted).values():
            weight.data = weight.data.to(torch.bfloat16)
    return adapted


def save_language_model(model: Any, tokenizer: Any, folder: Path, base: str = "") -> None:
    """Write an adapter as PEFT saves it, or a whole model as transformers does, with its tokenizer.

    If ``base`` names the model that was trained, harr.json records it.
    """
    from peft import PeftModel

    model.save_pretrained(folder, **({"selected_adapters": ["default"]} if isinstance(model, PeftModel) else {}))
    tokenizer.save_pretrained(folder)
    settle_adapter(folder)
    (folder / "README.md").unlink(missing_ok=True)
    if base:
        write_json(folder / "harr.json", {"base_model": base, "base": base_identity(base), "kind": "language_model"})


def base_identity(name: str) -> str:
    """Return a hash of a model's configuration and weights: equal for a copy, different for a fine-tuned sibling.

    ``name`` is a folder or a cached hub name; "" if neither exists. Files up to 16 MiB are read whole; of larger ones
    only the size, the header and evenly spaced blocks, which takes milliseconds per file.
    """
    folder = language_model_path(name)
    if not folder.is_dir():
        try:
            folder = Path(str(cached_file(name, "config.json", local_files_only=True))).parent
        except OSError:
            return ""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*config.json"), *folder.glob("*.safetensors")]):
        if path.name in ("config.json", "adapter_config.json") or path.suffix == ".safetensors":
            digest.update(f"{path.name} {path.stat().st_size}\n".encode())
            _sample(path, digest)
    return digest.hexdigest()[:16]


def _sample(path: Path, digest: Any) -> None:
    size = path.stat().st_size
    with path.open("rb") as handle:
        if size <= BLOCKS * BLOCK:
            digest.update(handle.read())
            return
        for number in range(BLOCKS):
            handle.seek(number * (size - BLOCK) // (BLOCKS - 1))
            digest.update(handle.read(BLOCK))
