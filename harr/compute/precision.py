"""The number format for ``train.optimizer.precision: auto``: bfloat16 if the hardware multiplies it, else float32.

Without AVX512_BF16, AMX or the like, torch multiplies bfloat16 with a generic kernel: a pass of 16 states through
MiniLM took 22 CPU seconds, against 1.0 in float32. The processor's capabilities are queried, not timed, so all seeds of
a run, and a resumed run, compute alike.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from harr.params.loop import LoopParams

P = TypeVar("P", bound=LoopParams)
KERNELS = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16")
"""Torch's names for the processor capabilities of bfloat16 products; the last is ARM's."""


def choose_precision(precision: str) -> str:
    """Return the number format; for ``auto``, this machine's fast one.

    >>> choose_precision("float32")
    'float32'
    """
    if precision != "auto":
        return precision
    return "bfloat16" if multiplies_bfloat16() else "float32"


def multiplies_bfloat16() -> bool:
    """Return whether the GPU, or without one the processor, supports bfloat16 products."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities: Mapping[str, Any] = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in KERNELS)


def is_fast_bfloat16(dtype: torch.dtype) -> bool:
    """Return whether this format is bfloat16 and the machine multiplies it natively."""
    return dtype == torch.bfloat16 and multiplies_bfloat16()


def halve_frozen(model: torch.nn.Module) -> None:
    """Convert the frozen linear layers of a model trained under autocast to bfloat16, in place.

    Autocast would cast them at every product and keep each copy for the backward pass; the products are the same.
    """
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear) and not layer.weight.requires_grad:
            layer.bfloat16()


def resolve_precision(params: P) -> P:
    """Replace ``auto`` in training parameters by the number format, which is part of a run's identity."""
    optimizer = params.optimizer.model_copy(update={"precision": choose_precision(params.optimizer.precision)})
    return params.model_copy(update={"optimizer": optimizer})
