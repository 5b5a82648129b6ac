"""The state of an optimiser as named tensors, so that a checkpoint needs no pickle."""

import torch


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The state of an optimiser by ``<parameter's number>.<name>``, as safetensors can keep it."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value.contiguous() for index, slots in state.items() for name, value in slots.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Put back what ``optimizer_tensors`` gave."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
