"""Matrices for many products, packed for the processor once, not at every product (oneDNN)."""

import torch
from torch import Tensor

from harr.compute.products import product


class Packed:
    """A linear layer, or a corpus's vectors, in the layout that the processor's kernel reads.

    A product with a few rows is bound by reading the matrix; packed, bfloat16 takes a third to a half of the time.
    """

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None = None) -> None:
        """Pack a dense matrix; without a kernel for it, it stays unchanged."""
        weight_OI = weight_OI.detach().contiguous()
        self._bias_O = None if bias_O is None else bias_O.detach()
        self._laid_out = _has_kernel(weight_OI)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI, None) if self._laid_out else weight_OI

    def __call__(self, rows_BI: Tensor, *, gelu: bool = False) -> Tensor:
        """Return ``rows_BI @ weight_OI.T + bias_O``, (B, O), with ``gelu`` followed by GELU."""
        if self._laid_out:
            return product(rows_BI, self._weight, self._bias_O, "gelu" if gelu else "none")
        output = torch.nn.functional.linear(rows_BI, self._weight, self._bias_O)
        return torch.nn.functional.gelu(output) if gelu else output


def _has_kernel(weight_OI: Tensor) -> bool:
    if weight_OI.device.type != "cpu" or not torch.backends.mkldnn.is_available() or not weight_OI.numel():
        return False
    return weight_OI.dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
