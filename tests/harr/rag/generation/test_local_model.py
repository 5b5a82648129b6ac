"""A model in this process: stop strings, batching that changes nothing, sampling, refusals."""

from pathlib import Path
from typing import Any

import pytest
import torch
from letters import save_letters

from harr.errors import ModelError
from harr.rag.generation import decoding
from harr.rag.generation.local_model import LocalGenerator
from harr.types import Generate, TruncatedCompletion

PROMPTS = [Generate(prompt=text) for text in ("a", "bcd", "abcabcabc", "zz", "hello")]


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_letters(tmp_path_factory.mktemp("model"), spread=1.0)


def generator(letters: Path, **changes: float) -> LocalGenerator:
    settings = {"temperature": 0.0, "max_tokens": 12, "batch_size": 8, "seed": 0} | changes
    return LocalGenerator(str(letters), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_neither_batch_nor_order_changes_a_completion(letters: Path, temperature: float) -> None:
    together = generator(letters, temperature=temperature).complete(PROMPTS)
    alone = generator(letters, temperature=temperature, batch_size=1).complete(PROMPTS[::-1])
    assert together == alone[::-1] and all(together)
    other = generator(letters, temperature=temperature, seed=1).complete(PROMPTS)
    assert (other != together) == bool(temperature), "another seed gives another sample"


def test_rows_that_end_make_room_for_others(letters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unfinished rows of several batches continue together: fewer are computed, and the texts are the same."""
    prompts = [Generate(prompt=chr(97 + n % 26) * (1 + n % 7), stop=("s", "x", "e")) for n in range(24)]
    texts: dict[int, list[str]] = {}
    rows: dict[int, int] = {}
    for many in (4, 10_000):
        monkeypatch.setattr(decoding, "MANY_ROWS", many)
        player = generator(letters, temperature=1.0, batch_size=8, max_tokens=24)
        computed: list[int] = []
        player._language_model.model.register_forward_pre_hook(
            lambda _, args, kwargs, counts=computed: counts.append(len(kwargs["input_ids"])), with_kwargs=True
        )
        texts[many], rows[many] = player.complete(prompts), sum(computed)
    assert texts[4] == texts[10_000] and rows[4] < 0.9 * rows[10_000]
    assert texts[4] == generator(letters, temperature=1.0, batch_size=1, max_tokens=24).complete(prompts)


@pytest.mark.fault(23)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_full_gpu_gets_smaller_batches(letters: Path, temperature: float, capsys: pytest.CaptureFixture[str]) -> None:
    player, wanted = generator(letters, temperature=temperature), generator(letters, temperature=temperature)
    batches: list[int] = []

    def room(_: torch.nn.Module, args: Any, kwargs: dict[str, torch.Tensor]) -> None:
        batches.append(len(kwargs["input_ids"]))
        if batches[-1] > limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    limit = 2
    player._language_model.model.register_forward_pre_hook(room, with_kwargs=True)
    assert player.complete(PROMPTS) == wanted.complete(PROMPTS)
    assert batches[:2] == [5, 2] and set(batches[2:]) == {2, 1}
    if not temperature:  # a line is printed once
        assert "the GPU is full at batches of 5; going on with 2\n" in capsys.readouterr().out
    limit = 0
    with pytest.raises(torch.OutOfMemoryError):
        player.complete(PROMPTS)


def test_a_completion_ends_before_its_first_stop_string(letters: Path) -> None:
    whole = generator(letters).complete(PROMPTS[:1])[0]
    assert len(whole) > 4
    stop = whole[2:4]
    cut = whole[: whole.index(stop)]
    (found, *_) = generator(letters).complete([Generate(prompt="a", stop=("never", stop)), *PROMPTS[1:]])
    assert found == cut and not isinstance(found, TruncatedCompletion)
    (limited,) = generator(letters).complete([Generate(prompt="a", stop=("never",))])
    assert isinstance(limited, TruncatedCompletion), "it ended at its limit"
    alone = generator(letters)
    alone.complete([Generate(prompt="a", stop=(stop,))])
    assert alone.usage()["completion_tokens"] == len(cut) + 2


def test_equal_requests_are_asked_once(letters: Path) -> None:
    player = generator(letters)
    replies = player.complete([PROMPTS[1], PROMPTS[0], PROMPTS[1]])
    assert replies[0] == replies[2]
    assert player.usage()["requests"] == 2
    assert player.usage()["prompt_tokens"] == 3 + 1


def test_messages_go_through_the_chat_template_and_a_long_prompt_loses_its_beginning(letters: Path) -> None:
    def written(**request: Any) -> list[str]:
        return generator(letters).complete([Generate(**request)])

    assert written(messages=({"role": "user", "content": "bc"},)) == written(prompt="ubca")
    assert written(prompt="ab" * 100) == written(prompt="ab" * 26)


def test_a_bad_folder_is_one_clear_line(letters: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"does not exist; set generator\.model"):
        generator(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="incomplete"):
        generator(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        generator(tmp_path)
    assert "\n" not in str(caught.value)
