"""Trained weights and optimizer state as named tensors, so checkpoints need no pickle."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from harr.errors import ModelError


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return an optimizer's state by ``<parameter's number>.<name>``, for safetensors."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value.contiguous() for index, slots in state.items() for name, value in slots.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Restore the state that ``optimizer_tensors`` returned."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def trained_weights(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the trainable weights by name, in a fixed order."""
    return {path: weight for path, weight in model.named_parameters() if weight.requires_grad}


@torch.no_grad()
def load_tensors(weights: Mapping[str, Tensor], tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Copy tensors into the weights with the same names.

    Raises:
        ModelError: a name or a shape differs.
    """
    for path, tensor in tensors.items():
        if path not in weights or weights[path].shape != tensor.shape:
            raise ModelError(f"{folder} does not fit this model at {path}; run `dvc repro -f -s train`")
        weights[path].copy_(tensor)
