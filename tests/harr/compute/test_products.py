"""A linear layer by oneDNN, or with a matrix laid out for the processor, gives the numbers of torch's own."""

import copy

import pytest
import torch

from harr.compute.packed import Packed
from harr.compute.products import Linear, use_onednn


@pytest.mark.parametrize("shape", [(1, 24), (7, 24), (3, 5, 24)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_products_and_gradients_are_those_of_torch(shape: tuple[int, ...], bias: bool, frozen: bool) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.Linear(24, 40, bias=bias), torch.nn.GELU(), torch.nn.Linear(40, 8))
    theirs.requires_grad_(not frozen)
    ours = copy.deepcopy(theirs)
    use_onednn(ours)
    assert [type(part) for part in ours] == [Linear, torch.nn.GELU, Linear]
    results = []
    for model in (theirs, ours):
        rows = torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_()
        out = model(rows)
        out.square().sum().backward()
        results.append([out.detach(), rows.grad, *(weight.grad for weight in model.parameters())])
    for theirs_own, ours_own in zip(*results, strict=True):
        if theirs_own is None:
            assert ours_own is None
        else:
            torch.testing.assert_close(ours_own, theirs_own, atol=1e-5, rtol=1e-5)


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
