"""A matrix that was laid out for the processor gives the products of a linear layer."""

import pytest
import torch

from harr.compute.packed import Packed


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_products_are_those_of_a_linear_layer(dtype: torch.dtype, atol: float, rows: int) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(48, 100)
    x_BI = torch.randn(rows, 48)
    wanted = layer(x_BI).detach()
    packed = Packed(layer.weight.to(dtype), layer.bias.to(dtype))
    torch.testing.assert_close(packed(x_BI.to(dtype)).float(), wanted, atol=atol, rtol=atol)
    bent = packed(x_BI.to(dtype), gelu=True).float()
    torch.testing.assert_close(bent, torch.nn.functional.gelu(wanted), atol=atol, rtol=atol)
    plain = Packed(layer.weight.to(dtype))(x_BI.to(dtype)).float()
    torch.testing.assert_close(plain, wanted - layer.bias.detach(), atol=atol, rtol=atol)
