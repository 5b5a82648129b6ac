"""The number format that ``train.precision: auto`` means: bfloat16 where the machine multiplies it, float32 elsewhere.

Without AVX512_BF16, AMX or their like torch multiplies bfloat16 by a general kernel: a pass of 16 states of MiniLM took
22 CPU seconds, and 1.0 in float32. What the processor can do is asked, not timed, so that all seeds of a run, and what
goes on after a kill, compute alike.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from harr.params.loop import LoopParams

P = TypeVar("P", bound=LoopParams)
KERNELS = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16")
"""Capabilities of a processor, as torch names them, that bring products in bfloat16; the last is that of ARM."""


def resolved(precision: str) -> str:
    """Return the number format itself: what is asked for, and for ``auto`` what this machine is fast in.

    >>> resolved("float32")
    'float32'
    """
    if precision != "auto":
        return precision
    return "bfloat16" if multiplies_bfloat16() else "float32"


def multiplies_bfloat16() -> bool:
    """Return whether the GPU, or the processor where there is none, has products in bfloat16."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    able: Mapping[str, Any] = torch.cpu.get_capabilities()
    return any(able.get(name, False) for name in KERNELS)


def settled(params: P) -> P:
    """Return parameters of training that name the number format itself, so that a run is known by it."""
    return params.model_copy(update={"precision": resolved(params.precision)})
