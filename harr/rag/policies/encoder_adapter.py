"""The trained part of an encoder, a LoRA adapter or all its layers: begin, save and load it."""

import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from harr.compute.tensors import load_tensors, trained_weights
from harr.embed.encoder import Encoder
from harr.errors import ModelError, ParamsError
from harr.io.extras import optional
from harr.io.files import check_sums, read_json, write_json
from harr.io.model_folder import settle_adapter
from harr.params.train_facts import LoraParams
from harr.rag.policies.query_adapter import QUERY_ADAPTER, QueryAdapter, put_on

if TYPE_CHECKING:
    from peft import PeftModel

LAYERS = "layers.safetensors"
LINK_FEATURES = "link_features.safetensors"
"""File of the link term (``harr/rag/policies/link_features.py``), if there is one."""


def add_adapter(encoder: Encoder, *, rank: int, alpha: int, seed: int) -> "PeftModel":
    """Put a fresh adapter on all linear layers (LoRA, arXiv 2106.09685); the output does not change yet.

    PEFT swaps the layers inside ``encoder.model``, so the encoder itself now uses the adapter; the
    returned handle saves it or switches it off (``disable_adapter()``). There is no dropout: it
    would make the probability of a choice differ between rollout and update.
    """
    peft = optional("peft", "pipeline")
    torch.manual_seed(seed)
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        exclude_modules=r".*pooler.*",
        task_type="FEATURE_EXTRACTION",
    )
    layers = _layers(encoder)
    if not any(isinstance(module, torch.nn.Linear) for module in layers.modules()):
        raise ModelError(f"{encoder.name} is a table of token vectors, which LoRA cannot train; set train.lora: null")
    adapter: PeftModel = peft.get_peft_model(layers, config)
    encoder.model.eval()
    return adapter


def begin(encoder: Encoder, lora: LoraParams | None, seed: int) -> torch.nn.Module:
    """Return the module to train: a fresh adapter, or without ``lora`` the encoder's own layers.

    Raises:
        ParamsError: the encoder has no weights here.
    """
    if not encoder.has_weights:
        raise ParamsError(
            f"{encoder.name} has no weights here, so it cannot be trained; set retriever.learns: query_adapter, or "
            "link_features"
        )
    return unfreeze(encoder) if lora is None else add_adapter(encoder, rank=lora.rank, alpha=lora.alpha, seed=seed)


def unfreeze(encoder: Encoder) -> torch.nn.Module:
    """Make all weights of the encoder trainable (full fine-tuning), except the unused pooler."""
    model: torch.nn.Module = _layers(encoder)
    for path, weight in model.named_parameters():
        weight.requires_grad_("pooler." not in path)
    return model


def _layers(encoder: Encoder) -> Any:
    """Return the trainable part of an encoder: its transformer, or its table of token vectors; no later module."""
    return getattr(encoder.model[0], "auto_model", encoder.model[0])


def save_adapter(adapter: torch.nn.Module, encoder: Encoder, folder: Path) -> None:
    """Write the trained weights, and harr.json, which names their base.

    An adapter is saved as adapter_model.safetensors and adapter_config.json, trained layers as layers.safetensors, and
    a map of the vector as query_adapter.safetensors.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "harr.json", {"base": encoder.identity, "base_model": encoder.name})
    if isinstance(adapter, QueryAdapter):
        return adapter.save(folder)
    if not isinstance(adapter, optional("peft", "pipeline").PeftModel):
        weights = {path: weight.detach().contiguous() for path, weight in trained_weights(adapter).items()}
        save_file(weights, folder / LAYERS)
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Could not find a config file")
        adapter.save_pretrained(str(folder), selected_adapters=["default"])
    settle_adapter(folder, base_model_name_or_path=encoder.name)
    (folder / "README.md").unlink(missing_ok=True)


@cache
def scorers() -> dict[str, EntryPoint]:
    """Return entry points of installed packages that open candidate scorers (docs/extend.md), by the file read."""
    return {point.name: point for point in entry_points(group="harr.scorers")}


def load_adapter(encoder: Encoder, folder: Path) -> "PeftModel | None":
    """Load a saved adapter, layers or map into the encoder that it was trained from; return the adapter, if any.

    If the folder holds only a candidate scorer (:func:`scorers`), the encoder is unchanged.

    Raises:
        ModelError: the folder holds none of these, or belongs to another base encoder.
        DamagedFile: one of its files has changed.
    """
    check_sums(folder, "dvc repro -f -s train")
    kinds = [name for name in ("adapter_model.safetensors", LAYERS, QUERY_ADAPTER) if (folder / name).exists()]
    scored = any((folder / name).exists() for name in scorers())
    if not (kinds or scored) or not (folder / "harr.json").exists():
        raise ModelError(
            f"{folder} holds no adapter (adapter_model.safetensors, harr.json); run `dvc repro train`, or install "
            "the plug-in that trained it"
        )
    base = read_json(folder / "harr.json")["base"]
    if base != encoder.identity:
        raise ModelError(
            f"{folder} was trained from encoder {base}, but {encoder.name} is {encoder.identity}; "
            "set encoder in params.yaml to the one it was trained from, or run `dvc repro -f -s train`"
        )
    if not kinds:
        return None
    if kinds == [QUERY_ADAPTER]:
        put_on(encoder, folder)
        return None
    layers = _layers(encoder)
    if LAYERS in kinds:
        load_tensors(dict(layers.named_parameters()), load_file(folder / LAYERS), folder)
        return None
    adapter: PeftModel = optional("peft", "pipeline").PeftModel.from_pretrained(layers, str(folder), is_trainable=False)
    encoder.model.eval()
    return adapter
