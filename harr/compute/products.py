"""float32 products of linear layers on a CPU, by oneDNN instead of MKL.

MKL reaches only half of the speed of an AMD processor with AVX512: 848 rows by 384 x 1,536 ran at 105 billion
operations a second on one core of an EPYC, and at 228 by oneDNN. The sums differ only in their last bits.
"""

from typing import Any, cast

import torch
from torch import Tensor


class _Product(torch.autograd.Function):
    """A linear layer with forward and backward products by oneDNN."""

    @staticmethod
    def forward(context: Any, rows_BI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        context.save_for_backward(rows_BI if weight_OI.requires_grad else None, weight_OI)
        return product(rows_BI, weight_OI, bias_O)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        [gradient_BO], (rows_BI, weight_OI) = gradients, context.saved_tensors
        to_rows, to_weight, to_bias = context.needs_input_grad
        flat_BO = gradient_BO.reshape(-1, gradient_BO.shape[-1])
        return (
            product(gradient_BO, weight_OI.t(), None) if to_rows else None,
            product(flat_BO.t(), rows_BI.reshape(-1, rows_BI.shape[-1]).t(), None) if to_weight else None,
            flat_BO.sum(0) if to_bias else None,
        )


def product(rows_BI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, then: str = "none") -> Tensor:
    """Return ``rows_BI @ weight_OI.T + bias_O``, (B, O), by oneDNN; ``then`` may be gelu."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(rows_BI, weight_OI, bias_O, then, [], "none"))


class Linear(torch.nn.Linear):
    """torch's linear layer, computed by oneDNN if everything is float32 on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the layer's product."""
        is_float32 = input.dtype == self.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        if is_float32 and input.device.type == "cpu" and input.numel():
            return cast(Tensor, _Product.apply(input, self.weight, self.bias))
        return super().forward(input)


def use_onednn(model: torch.nn.Module) -> None:
    """Replace a model's linear layers by :class:`Linear`; subclasses stay unchanged."""
    if torch.backends.mkldnn.is_available():
        for part in model.modules():
            if type(part) is torch.nn.Linear:
                part.__class__ = Linear
