"""Chat templates: a conversation goes on from what was sampled, whatever the template does to earlier turns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from letters import TOLD, OnePassage, save_letters
from transformers import AutoTokenizer
from trl import chat_template_utils

from harr.errors import ModelError
from harr.rag.generation.chat_template import keep_turns, keeps_turns, turn_frame
from harr.rag.generation.local_model import LanguageModel, load_model
from harr.rag.generation.sampler import Sampler, Trace
from harr.rag.pipelines.react import react_passages
from harr.rag.rollout import play
from harr.types import Generate, Question

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


REPLIES = [
    '<think>\nlook it up\n</think>\n\n<tool_call>{"name": "search", "arguments": {"query": "xyz"}}</tool_call>',
    "<think>no</think>   hm  <eos>",
    "<think>x</think>Final answer: xyz\nxyz<eos>",
]
"""Of one episode: a call, a turn that the template would tidy up, and an answer."""


@pytest.mark.parametrize("template", [TIDYING, chat_template_utils.qwen3_training_chat_template])
def test_an_episode_of_calls_is_one_growing_text(folder: Path, template: str) -> None:
    model, tokenizer = load_model(str(folder))
    tokenizer.chat_template = template
    writer, turns = LanguageModel(model, tokenizer, name="printable"), iter(REPLIES)
    written: list[list[int]] = []

    def write(contexts: Sequence[Sequence[int]], stops: Sequence[tuple[str, ...]]) -> list[list[int]]:
        written.append(tokenizer(next(turns), add_special_tokens=False)["input_ids"])
        return written[-1:]

    question = Question("q", "what is xyz?")
    sampler = Sampler(writer, write, max_tokens=400)
    (episode,) = play([question], lambda asked: react_passages(asked, max_searches=2), OnePassage(), sampler)
    trace = Trace.of(episode)
    own = [token for token, mine in zip(trace.ids, trace.own, strict=True) if mine]
    assert own == [token for ids in written for token in ids] and trace.whole
    assert trace.prompt == writer.encode(Generate(episode.turns[0].request.messages))
    text = tokenizer.decode(trace.ids, clean_up_tokenization_spaces=False)
    assert text.startswith(REPLIES[0]) and text.endswith(REPLIES[2]) and REPLIES[1] in text
    assert f"<tool_response>\n[p]\n{TOLD}\n</tool_response>" in text and text.count("</tool_call>") == 2  # one told
    assert episode.answer == "xyz\nxyz" and episode.outcome.faults == ("no action",)


def test_a_template_that_refuses_the_messages_is_one_line(folder: Path) -> None:
    model, tokenizer = load_model(str(folder))
    tokenizer.chat_template = "{{ raise_exception('System role\n not supported') }}"
    writer = LanguageModel(model, tokenizer, name="printable")
    told = pytest.raises(ModelError, match="of generator printable cannot write these messages: System role not")
    with told as error:
        writer.encode(Generate(({"role": "system", "content": "x"},)))
    assert "\n" not in str(error.value)
