"""A model in this process: stop strings, batching that changes nothing, sampling, refusals."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from harr.errors import ModelError
from harr.generation.local import LocalGenerator
from harr.types import Generate

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}a"
PROMPTS = [Generate(prompt=text) for text in ("a", "bcd", "abcabcabc", "zz", "hello")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model whose tokens are single letters."""
    place = tmp_path_factory.mktemp("model")
    words = {letter: number for number, letter in enumerate(["<eos>", "<pad>", *"abcdefghijklmnopqrstuvwxyz"])}
    letters = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    letters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, eos_token="<eos>", pad_token="<pad>")
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        initializer_range=1.0,
        eos_token_id=0,
        pad_token_id=1,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def generator(folder: Path, **changes: float) -> LocalGenerator:
    settings = {"temperature": 0.0, "max_tokens": 12, "batch_size": 8, "seed": 0} | changes
    return LocalGenerator(str(folder), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_neither_batch_nor_order_changes_a_completion(folder: Path, temperature: float) -> None:
    together = generator(folder, temperature=temperature).complete(PROMPTS)
    alone = generator(folder, temperature=temperature, batch_size=1).complete(PROMPTS[::-1])
    assert together == alone[::-1]
    assert all(together)


def test_another_seed_gives_another_sample(folder: Path) -> None:
    first, second = (generator(folder, temperature=2.0, seed=seed).complete(PROMPTS) for seed in (1, 2))
    assert first != second


def test_a_completion_ends_before_its_first_stop_string(folder: Path) -> None:
    whole = generator(folder).complete(PROMPTS[:1])[0]
    assert len(whole) > 4
    stop = whole[2:4]
    cut = whole[: whole.index(stop)]
    player = generator(folder)
    assert player.complete([Generate(prompt="a", stop=("never", stop)), *PROMPTS[1:]])[0] == cut
    alone = generator(folder)
    alone.complete([Generate(prompt="a", stop=(stop,))])
    assert alone.usage()["completion_tokens"] == len(cut) + 2


def test_equal_requests_are_asked_once(folder: Path) -> None:
    player = generator(folder)
    replies = player.complete([PROMPTS[1], PROMPTS[0], PROMPTS[1]])
    assert replies[0] == replies[2]
    assert player.usage()["requests"] == 2
    assert player.usage()["prompt_tokens"] == 3 + 1


def test_messages_go_through_the_chat_template(folder: Path) -> None:
    chat = Generate(({"role": "user", "content": "bc"},))
    assert generator(folder).complete([chat]) == generator(folder).complete([Generate(prompt="ubca")])


def test_a_long_prompt_loses_its_beginning(folder: Path) -> None:
    long = "ab" * 100
    assert generator(folder).complete([Generate(prompt=long)]) == generator(folder).complete(
        [Generate(prompt=long[-52:])]
    )


def test_a_bad_folder_is_one_clear_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"does not exist; set generator\.model"):
        generator(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="incomplete"):
        generator(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        generator(tmp_path)
    assert "\n" not in str(caught.value)
