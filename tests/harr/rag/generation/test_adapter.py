"""The tie between an adapter and its base, and 4-bit bases: their published values, and who cannot have them."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from letters import save_letters
from safetensors.torch import load_file, save_file

from harr.builders.generators import stamps
from harr.compute.tensors import trained_weights
from harr.errors import ModelError
from harr.params.train_facts import LoraParams
from harr.rag.generation import adapter as adapter, local_model as local
from harr.rag.generation.adapter import base_identity


@pytest.mark.parametrize("block", [adapter.BLOCK, 64])
def test_a_copy_is_the_same_base_and_a_sibling_is_not(tmp_path: Path, block: int, monkeypatch: Any) -> None:
    """With blocks of 64 bytes only parts of the file are read: enough to notice one training step."""
    monkeypatch.setattr(adapter, "BLOCK", block)
    base = save_letters(tmp_path / "base", spread=0.5)
    shutil.copytree(base, tmp_path / "copy")
    assert base_identity(str(base)) == base_identity(str(tmp_path / "copy")) != ""
    (base / "README.md").write_text("no matter")
    weights = load_file(base / "model.safetensors")
    save_file({name: weight - 1e-3 for name, weight in weights.items()}, base / "model.safetensors")
    assert base_identity(str(base)) != base_identity(str(tmp_path / "copy"))
    assert base_identity(str(tmp_path / "gone")) == base_identity("no/such-model") == ""


def test_a_model_by_its_hub_name_is_identified_by_what_is_cached_of_it(tmp_path: Path, monkeypatch: Any) -> None:
    base, cached = save_letters(tmp_path / "base", spread=0.5), dict[str, Path]()
    monkeypatch.setattr(adapter, "cached_file", lambda name, file, **_: str(cached[name] / file))
    cached["ada/letters"] = base
    first = stamps(Path("ada/letters"))
    shutil.copytree(base, tmp_path / "revised")
    weights = load_file(base / "model.safetensors")
    save_file({name: weight + 1 for name, weight in weights.items()}, tmp_path / "revised/model.safetensors")
    cached["ada/letters"] = tmp_path / "revised"
    assert stamps(Path("ada/letters")) != first


def test_what_learns_is_in_32_bits(tmp_path: Path) -> None:
    """An update of a thousandth is kept, whatever the files' type; bfloat16 would round it away."""
    folder = str(save_letters(tmp_path / "base", spread=0.5))
    for lora in (None, LoraParams(rank=2, alpha=2)):
        model = adapter.begin(local.load_model(folder)[0].to(torch.bfloat16), lora, 0)
        assert {weight.dtype for weight in trained_weights(model).values()} == {torch.float32}


def test_four_bits_have_the_published_values_or_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    """NormalFloat, computed and stored in bfloat16 (so that it can be sharded), not quantized twice."""
    found = local.nf4()
    assert found.load_in_4bit and found.bnb_4bit_quant_type == "nf4" and not found.bnb_4bit_use_double_quant
    assert found.bnb_4bit_compute_dtype == found.bnb_4bit_quant_storage == torch.bfloat16
    folder = str(save_letters(tmp_path / "letters", spread=0.5))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match=r"needs a CUDA GPU.*set train\.quantization: none: LoRA in bfloat16"):
        local.load_model(folder, "nf4")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"needs bitsandbytes.*harr\[qlora\].*none: LoRA in bfloat16"):
        local.load_model(folder, "nf4")
