"""The number format that training computes in where params.yaml leaves it to the machine."""

from typing import Any

import pytest
import torch

from harr.compute import precision
from harr.params.train import GRPOParams


@pytest.mark.fault(23)
@pytest.mark.parametrize(
    ("able", "asked", "wanted"),
    [
        ({"avx512_bf16": True}, "auto", "bfloat16"),
        ({"amx_bf16": True}, "auto", "bfloat16"),
        ({"avx2": True, "avx512_f": True, "avx512_bf16": False}, "auto", "float32"),
        ({}, "auto", "float32"),
        ({}, "bfloat16", "bfloat16"),
        ({"amx_bf16": True}, "float16", "float16"),
        ({"amx_bf16": True}, "float32", "float32"),
    ],
)
def test_auto_takes_bfloat16_only_where_the_processor_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, able: dict[str, bool], asked: Any, wanted: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert precision.choose_precision(asked) == wanted
    assert (
        precision.resolve_precision(GRPOParams(method="grpo", optimizer={"precision": asked})).optimizer.precision
        == wanted
    )
