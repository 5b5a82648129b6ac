"""The number format that ``train.optimizer.precision: auto`` means: bfloat16 where the machine multiplies it, float32 elsewhere.

Without AVX512_BF16, AMX or their like torch multiplies bfloat16 by a general kernel: a pass of 16 states of MiniLM took
22 CPU seconds, and 1.0 in float32. The processor's capabilities are queried, not timed, so that all seeds of a run, and
a resumed run, compute alike.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from harr.params.loop import LoopParams

P = TypeVar("P", bound=LoopParams)
KERNELS = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16")
"""Torch's names of the processor capabilities for products in bfloat16; the last is that of ARM."""


def choose_precision(precision: str) -> str:
    """Return the number format; for ``auto`` the fast one of this machine.

    >>> choose_precision("float32")
    'float32'
    """
    if precision != "auto":
        return precision
    return "bfloat16" if multiplies_bfloat16() else "float32"


def multiplies_bfloat16() -> bool:
    """Return whether the GPU, or without one the processor, has products in bfloat16."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities: Mapping[str, Any] = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in KERNELS)


def is_fast_bfloat16(dtype: torch.dtype) -> bool:
    """Return whether weights of this format are in bfloat16, and the machine multiplies it."""
    return dtype == torch.bfloat16 and multiplies_bfloat16()


def halve_frozen(model: torch.nn.Module) -> None:
    """Put the frozen linear layers of a model that learns under autocast in bfloat16, in place.

    Autocast would cast them at every product, and keep each copy for the backward pass; the products are the same.
    """
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear) and not layer.weight.requires_grad:
            layer.bfloat16()


def resolve_precision(params: P) -> P:
    """Replace ``auto`` in the parameters of training by the number format, which is part of a run's identity."""
    optimizer = params.optimizer.model_copy(update={"precision": choose_precision(params.optimizer.precision)})
    return params.model_copy(update={"optimizer": optimizer})
