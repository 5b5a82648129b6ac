"""Attention for bfloat16 training on a CPU, computed in float32: its backward pass is several times as fast.

There torch multiplies a head's small matrices with a generic kernel, which is slow in bfloat16 (``python -m
benchmarks.peers``). The rest stays in bfloat16; the learnt weights are no farther from float32's.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "harr_float32"
"""The attention's name in transformers."""


def compute_attention(
    module: torch.nn.Module,
    query_BHTD: Tensor,
    key_BHTD: Tensor,
    value_BHTD: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return torch's attention, (B, T, H, D), computed in float32, in the query's number format."""
    parts = [part.float() for part in (query_BHTD, key_BHTD, value_BHTD)]
    if attention_mask is not None and attention_mask.is_floating_point():
        attention_mask = attention_mask.float()
    with torch.autocast(query_BHTD.device.type, enabled=False):
        output_BTHD, _ = sdpa_attention_forward(module, parts[0], parts[1], parts[2], attention_mask, **options)
    return output_BTHD.to(query_BHTD.dtype), None


AttentionInterface.register(NAME, compute_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


def prepare_for_bfloat16(model: Any) -> None:
    """Prepare a sentence-transformers model and its adapter for bfloat16 training under autocast on a CPU.

    :func:`compute_attention` replaces torch's attention. PEFT no longer casts layer inputs to float32 and back, which
    takes a twentieth of a pass without changing a bit.
    """
    if model.device.type != "cpu":
        return
    for part in model.modules():
        if hasattr(part, "cast_input_dtype_enabled"):
            part.cast_input_dtype_enabled = False
        if isinstance(part, PreTrainedModel) and part.config._attn_implementation == "sdpa":
            part.set_attn_implementation(NAME)
