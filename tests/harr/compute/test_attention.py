"""A model that learns in bfloat16 on a CPU: its attention and adapter, compared with float32."""

from typing import Any

import pytest
import torch
from torch import Tensor

from harr.compute.attention import NAME, prepare_for_bfloat16
from harr.embed.encoder import Encoder
from harr.params.train_facts import LoraParams
from harr.rag.policies.encoder_adapter import begin

TEXTS = [f"Where was the founder of firm {n} born? " * (1 + n % 7) for n in range(16)]


def learnt(model: str, *, half: bool, ready: bool) -> tuple[Tensor, Tensor]:
    """Return the texts' vectors and the gradient of a loss on them."""
    encoder = Encoder(model, max_tokens=128)
    adapter: Any = begin(encoder, LoraParams(), 0)
    for weight in adapter.parameters():
        if weight.requires_grad and not weight.any():  # LoRA begins with zeros, which pass no gradient
            torch.nn.init.normal_(weight, std=0.02, generator=torch.Generator().manual_seed(0))
    if ready:
        prepare_for_bfloat16(encoder.model)
        assert encoder.model[0].auto_model.config._attn_implementation == NAME
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        vectors_BD = encoder.forward(TEXTS)
    (vectors_BD * torch.linspace(0, 1, encoder.width)).sum().backward()
    return vectors_BD.detach(), torch.cat([w.grad.flatten() for w in adapter.parameters() if w.grad is not None])


@pytest.fixture(scope="module")
def exact(tiny: str) -> tuple[Tensor, Tensor]:
    return learnt(tiny, half=False, ready=False)


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


def test_bfloat16_comes_no_farther_from_float32_than_with_torchs_attention(
    tiny: str, exact: tuple[Tensor, Tensor]
) -> None:
    plain, ready = learnt(tiny, half=True, ready=False), learnt(tiny, half=True, ready=True)
    for found, wanted, own in zip(ready, exact, plain, strict=True):
        assert distance(found, wanted) < 1.1 * distance(own, wanted) < 0.1


def test_float32_goes_through_it_unchanged(tiny: str, exact: tuple[Tensor, Tensor]) -> None:
    assert all(torch.equal(one, other) for one, other in zip(learnt(tiny, half=False, ready=True), exact, strict=True))
