"""Chat templates: a conversation goes on from what was sampled, whatever the template does to earlier turns."""

from pathlib import Path
from typing import Any

import pytest
from letters import save_letters
from transformers import AutoTokenizer
from trl import chat_template_utils

from harr.errors import ModelError
from harr.rag.generation.chat_template import keep_turns, keeps_turns, turn_frame
from harr.rag.generation.local_model import LanguageModel, load_model
from harr.types import Generate

KEEPING = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
DROPPING = KEEPING.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
BEGINNING = KEEPING.replace("<|assistant|>\n{% endif", "<|assistant|>\n<think>\n{% endif").replace(
    "{{ m.content }}", "{{ ('<think>\n' if m.role == 'assistant' else '') + m.content }}"
)
"""Prompts with the beginning of a thought."""
TIDYING = KEEPING.replace(
    "{{ m.content }}",
    "{% if '</think>' in m.content %}<think>\n{{ m.content.split('</think>')[0].split('<think>')[-1].strip() }}\n"
    "</think>\n\n{{ m.content.split('</think>')[1].strip() }}{% else %}{{ m.content }}{% endif %}",
)
"""Keeps well-formed thoughts, and writes others as it likes them."""
ODD = "{{ messages[9].content.x }}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_letters(tmp_path_factory.mktemp("printable"), spread=0.3, room=8192, printable=True)


def tokenizer_with(folder: Path, template: str | None) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    return tokenizer


REFUSING = "{{ raise_exception('no') }}"


@pytest.mark.parametrize(
    ("template", "keeps"),
    [(KEEPING, True), (BEGINNING, True), (TIDYING, True), *((one, False) for one in (DROPPING, None, REFUSING, ODD))],
)
def test_whether_a_template_keeps_turns_and_one_that_trl_has_no_other_for_stays(
    folder: Path, template: str | None, keeps: bool
) -> None:
    assert keeps_turns(tokenizer_with(folder, template)) is keeps
    assert keep_turns(tokenizer_with(folder, template)).chat_template == template


def test_a_loaded_model_has_the_kept_template_and_saves_it(folder: Path, tmp_path: Path) -> None:
    """And what it is to be told: a model that thinks cannot be told not to by a program that loads it (review F5)."""
    model, tokenizer = load_model(str(folder))
    tokenizer.chat_template = chat_template_utils.qwen3_chat_template
    for saved in (model, tokenizer):
        saved.save_pretrained(tmp_path / "thinking")
    loaded = load_model(str(tmp_path / "thinking"))[1]
    assert loaded.chat_template == chat_template_utils.qwen3_training_chat_template
    assert "think" not in turn_frame(loaded, "tiny")[1]
    loaded.save_pretrained(tmp_path / "again")
    assert keeps_turns(AutoTokenizer.from_pretrained(tmp_path / "again"))
    told = load_model(str(tmp_path / "thinking"), chat_template_kwargs={"enable_thinking": False})[1]
    assert turn_frame(told, "tiny")[1].endswith("<think>\n\n</think>\n\n")


def test_a_template_that_refuses_the_messages_is_one_line(folder: Path) -> None:
    model, tokenizer = load_model(str(folder))
    tokenizer.chat_template = "{{ raise_exception('System role\n not supported') }}"
    writer = LanguageModel(model, tokenizer, name="printable")
    told = pytest.raises(ModelError, match="of generator printable cannot write these messages: System role not")
    with told as error:
        writer.encode(Generate(({"role": "system", "content": "x"},)))
    assert "\n" not in str(error.value)
