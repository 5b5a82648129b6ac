"""The number format that training computes in where params.yaml leaves it to the machine."""

import pytest
import torch

from harr.compute import precision
from harr.params.train import GRPOParams


@pytest.mark.parametrize(
    ("able", "wanted"),
    [
        ({"avx512_bf16": True}, "bfloat16"),
        ({"amx_bf16": True}, "bfloat16"),
        ({"avx2": True, "avx512_f": True, "avx512_bf16": False}, "float32"),
        ({}, "float32"),
    ],
)
def test_auto_takes_bfloat16_only_where_the_processor_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, able: dict[str, bool], wanted: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert precision.resolved("auto") == wanted
    assert precision.settled(GRPOParams(method="grpo", precision="auto")).precision == wanted


@pytest.mark.parametrize("asked", ["float32", "bfloat16", "float16"])
def test_what_is_asked_for_by_name_is_taken(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    assert precision.resolved(asked) == asked
