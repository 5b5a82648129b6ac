"""The LoRA adapter of an encoder: add, save, load, all in place and in safetensors."""

import warnings
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model

from harr.errors import ModelError
from harr.files import read_json, write_json
from harr.retrieval.encoder import Encoder


def add_adapter(encoder: Encoder, *, rank: int, alpha: int, seed: int) -> PeftModel:
    """Put a fresh adapter on all linear layers (LoRA, arXiv 2106.09685); the output does not change yet.

    PEFT swaps the layers inside ``encoder.model``, so the encoder itself now uses the adapter; the
    returned handle saves it or switches it off (``disable_adapter()``). There is no dropout: it
    would make the probability of a choice differ between rollout and update.
    """
    torch.manual_seed(seed)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        exclude_modules=r".*pooler.*",
        task_type="FEATURE_EXTRACTION",
    )
    transformer: Any = encoder.model[0]
    adapter = get_peft_model(transformer.auto_model, config)
    encoder.model.eval()
    return adapter


def save_adapter(adapter: PeftModel, encoder: Encoder, folder: Path) -> None:
    """Write adapter_model.safetensors, adapter_config.json and harr.json (whose base it belongs to)."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Could not find a config file")
        adapter.save_pretrained(str(folder), selected_adapters=["default"])
    config = read_json(folder / "adapter_config.json")
    config["base_model_name_or_path"] = encoder.name
    write_json(folder / "adapter_config.json", config)
    write_json(folder / "harr.json", {"base": encoder.identity, "base_model": encoder.name})
    (folder / "README.md").unlink(missing_ok=True)


def load_adapter(encoder: Encoder, folder: Path) -> PeftModel:
    """Put a saved adapter on the encoder it was trained from.

    Raises:
        ModelError: the folder holds no adapter, or one of another base encoder.
    """
    if not (folder / "adapter_model.safetensors").exists() or not (folder / "harr.json").exists():
        raise ModelError(f"{folder} holds no adapter (adapter_model.safetensors, harr.json); run `dvc repro train`")
    base = read_json(folder / "harr.json")["base"]
    if base != encoder.identity:
        raise ModelError(
            f"{folder} was trained from encoder {base}, but {encoder.name} is {encoder.identity}; "
            "set encoder in params.yaml to the one it was trained from, or run `dvc repro -f -s train`"
        )
    transformer: Any = encoder.model[0]
    adapter = PeftModel.from_pretrained(transformer.auto_model, str(folder), is_trainable=False)
    encoder.model.eval()
    return adapter
