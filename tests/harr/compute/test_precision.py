"""The number format of training where params.yaml leaves it to the machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harr.compute import precision
from harr.compute.checkpoints import Checkpoints
from harr.compute.trl import row_settings
from harr.params.train import GRPOParams, LeReTParams

FORMATS = (torch.bfloat16, torch.float32, torch.float16)


def callback_of(folder: Path, stored: torch.dtype) -> Any:
    """Return what ``row_settings`` reads of a model stored in this format."""
    model = SimpleNamespace(config=SimpleNamespace(dtype=stored))
    return SimpleNamespace(
        learning=SimpleNamespace(checkpoints=Checkpoints(folder), model=model), steps=1, done=0, seed=0
    )


def test_a_gpu_that_emulates_bfloat16_trains_a_language_model_in_float32(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    callback = callback_of(tmp_path, torch.float32)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for emulates in (True, False):
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation=True, e=emulates: including_emulation or not e
        )
        assert row_settings(callback, LeReTParams(method="leret"), 8)["bf16"] is not emulates


@pytest.mark.parametrize("fast", [True, False])
def test_a_processor_trains_in_bfloat16_what_is_stored_so_where_it_multiplies_it(
    fast: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": fast})
    params = LeReTParams(method="leret")
    uses = {stored: row_settings(callback_of(tmp_path, stored), params, 8)["bf16"] for stored in FORMATS}
    assert uses == {torch.bfloat16: fast, torch.float32: False, torch.float16: False}


def test_frozen_layers_are_halved_and_the_products_stay() -> None:
    torch.manual_seed(0)
    model, rows = (
        torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)),
        torch.randn(4, 8),
    )
    model[0].requires_grad_(False)

    def compute() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(rows)

    before = compute()
    precision.halve_frozen(model)
    assert torch.equal(compute(), before)
    assert [part.weight.dtype for part in model] == [torch.bfloat16, torch.float32, torch.float32]


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
