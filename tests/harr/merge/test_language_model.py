"""A language model is merged only if its logits stay the same."""

from pathlib import Path

import pytest
import torch
from letters import save_letters
from peft import LoraConfig, get_peft_model

from harr.errors import ModelError
from harr.io.files import read_json, write_json
from harr.merge import language_model
from harr.merge.language_model import merge_language_model as merge
from harr.rag.generation import local_model
from harr.rag.generation.adapter import base_identity
from harr.rag.generation.local_model import LocalGenerator, load_model
from harr.types import Generate


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """An adapter that changes the letters model's output."""
    base = save_letters(tmp_path / "letters", spread=0.5)
    torch.manual_seed(1)
    config = LoraConfig(r=4, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    get_peft_model(load_model(str(base))[0], config).save_pretrained(tmp_path / "adapter")
    known = {"base_model": str(base), "base": base_identity(str(base)), "kind": "language_model"}
    write_json(tmp_path / "adapter/harr.json", known)
    return tmp_path / "adapter"


def says(folder: Path) -> str:
    """Return the model's continuation of a q."""
    generator = LocalGenerator(str(folder), temperature=0.0, max_tokens=12, batch_size=1, seed=0)
    return generator.complete([Generate(prompt="q")])[0]


def test_the_merged_model_says_what_the_adapter_says(adapter: Path, tmp_path: Path) -> None:
    metadata = {"facts": {"index_identity": "i"}, "training": {"method": "agent"}}
    figures = merge(adapter, tmp_path / "language_model", tmp_path / "work", **metadata)
    assert read_json(tmp_path / "language_model/harr.json")["training"] == {"method": "agent"}
    assert 0.0 < figures["logit_difference_max"] < 1e-3 and figures["probes"] == 6.0
    assert says(tmp_path / "language_model") == says(adapter) != says(tmp_path / "letters")
    assert not any("lora" in name for name, _ in load_model(str(tmp_path / "language_model"))[0].named_parameters())
    assert "index_identity | i" in (tmp_path / "language_model/README.md").read_text()


def test_a_whole_model_is_copied(tmp_path: Path) -> None:
    folder = save_letters(tmp_path / "letters", spread=0.5)
    write_json(folder / "harr.json", {"base_model": "other", "kind": "language_model"})
    assert merge(folder, tmp_path / "language_model", tmp_path / "work", facts={})["logit_difference_max"] == 0.0
    assert says(tmp_path / "language_model") == says(folder)


def test_on_a_cpu_a_base_in_bfloat16_is_merged_in_32_bits(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 16-bit products its logits would differ by more than allowed."""
    monkeypatch.setattr(local_model, "is_fast_bfloat16", lambda dtype: dtype == torch.bfloat16)
    load_model(str(tmp_path / "letters"))[0].to(torch.bfloat16).save_pretrained(tmp_path / "letters")
    known = read_json(adapter / "harr.json")
    write_json(adapter / "harr.json", known | {"base": base_identity(known["base_model"])})
    assert load_model(str(adapter))[0].dtype == torch.bfloat16
    assert merge(adapter, tmp_path / "out", tmp_path / "work", facts={})["logit_difference_max"] < 1e-3
    assert load_model(str(tmp_path / "out"))[0].dtype == torch.float32


def test_a_model_that_differs_is_not_written(adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "BOUND", {torch.float32: 1e-12})
    with pytest.raises(ModelError, match=r"a logit by 0\.0000\d+, at most 1e-12 is wanted; nothing was written"):
        merge(adapter, tmp_path / "language_model", tmp_path / "work", facts={})
    assert not (tmp_path / "language_model").exists()


def test_an_adapter_without_its_base_or_on_another_is_refused(adapter: Path, tmp_path: Path) -> None:
    """The other model has the same shape, so nothing else would reveal it."""
    save_letters(tmp_path / "letters", spread=0.4)
    with pytest.raises(ModelError, match=r"trained on another model than .*letters now is \(fingerprint \w+, found"):
        load_model(str(adapter))
    with pytest.raises(ModelError, match="another model"):
        merge(adapter, tmp_path / "language_model", tmp_path / "work", facts={})
    for record, line in (
        ({"base_model": str(tmp_path / "letters")}, "the fingerprint of that, base"),
        ({"base_model": str(tmp_path / "gone"), "base": "0"}, "gone does not exist"),
    ):
        write_json(adapter / "harr.json", record)
        with pytest.raises(ModelError, match=line):
            load_model(str(adapter))
    (adapter / "harr.json").unlink()
    with pytest.raises(ModelError, match=r"lacks harr\.json, which names its base_model"):
        load_model(str(adapter))
