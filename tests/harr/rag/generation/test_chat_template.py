"""TRL's chat templates: what is trained is what was sampled, or one clear line says why not."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trl
from letters import SHOWN, OnePassage, save_letters
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from trl import chat_template_utils

from harr.errors import ModelError
from harr.rag.generation.chat_template import add_settings, check_conversations, keep_turns, keeps_turns, turn_frame
from harr.rag.generation.local_model import LanguageModel, load_model
from harr.rag.generation.sampler import Sampler, Trace
from harr.rag.pipelines.r_search import r_search
from harr.rag.pipelines.react import react_passages
from harr.rag.pipelines.search_r1 import search_r1
from harr.rag.rollout import play
from harr.types import Episode, Generate, Pipeline, Question

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
REFUSED = {"gemma": "System role not supported", "deepseek_r1_distill": "does not keep earlier turns"}
"""Templates whose conversations cannot be trained on, and the message."""
CHAT = (
    *("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_5_think", "qwen3_5_nothink"),
    *("llama3", "llama3_1", "llama3_2", "gemma3", "phi3_5", *REFUSED),
)
ASKED = Question("q", "what is xyz?")
THOUGHT = "<think>\nlook it up\n</think>\n\n"
CALL = '<tool_call>{"name": "search", "arguments": {"query": "xyz"}}</tool_call>'


def bytes_tokenizer(template: str, *, begins: bool = True) -> Any:
    """Return a tokenizer of single bytes, which reads and writes any text."""
    words = {"<eos>": 0, "<bos>": 1} | {
        b: n for n, b in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()), start=2)
    }
    raw = Tokenizer(models.BPE(words, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    if begins:
        raw.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", bos_token="<bos>")
    tokenizer.chat_template = (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8")
    return keep_turns(tokenizer)


def writer_of(tokenizer: Any) -> LanguageModel:
    """Return a model that only lends its tokenizer."""
    generation = SimpleNamespace(eos_token_id=tokenizer.eos_token_id)
    model = SimpleNamespace(generation_config=generation, config=SimpleNamespace(max_position_embeddings=100_000))
    return LanguageModel(model, tokenizer, name="tiny")


def played(tokenizer: Any, pipeline: Pipeline, replies: Sequence[str], most: int = 4000) -> tuple[Episode, Trace]:
    """Play an episode in which the model writes these replies, ``most`` tokens of each; return it and its trace."""
    left, sampled = list(replies), list[int]()

    def write(contexts: Sequence[Sequence[int]], stops: Sequence[tuple[str, ...]]) -> list[list[int]]:
        ids: list[int] = tokenizer(left.pop(0), add_special_tokens=False)["input_ids"]
        sampled.extend(ids[:most])
        return [ids]

    [episode] = play([ASKED], pipeline, OnePassage(), Sampler(writer_of(tokenizer), write, max_tokens=4000))
    trace = Trace.of(episode)
    assert not left and [token for token, own in zip(trace.ids, trace.own, strict=True) if own] == sampled
    return episode, trace


@pytest.mark.parametrize("begins", [True, False], ids=["bos", "no bos"])
@pytest.mark.parametrize("name", CHAT)
def test_a_growing_text_stands_in_any_template(name: str, begins: bool) -> None:
    tokenizer = bytes_tokenizer(name, begins=begins)
    frame = turn_frame(tokenizer, "tiny")
    replies = ["<think>so</think> <search>xyz</search>", "<think>well</think> <answer>xyz</answer>"]
    episode, trace = played(tokenizer, partial(search_r1, max_searches=1, template=frame), replies)
    assert episode.answer == "xyz" and not episode.outcome.faults and trace.whole
    prompt = tokenizer.decode(trace.prompt)
    instructions = prompt[prompt.index("Answer the question") : prompt.rindex(ASKED.text) + len(ASKED.text)]
    turn = [{"role": "user", "content": instructions}]
    written = tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False)
    if begins and 1 not in written:  # the tokenizer begins every text with it, and the template leaves it out
        written = [1, *written]
    assert trace.prompt == written and trace.prompt.count(1) <= 1
    text = tokenizer.decode(trace.ids)
    assert text.startswith(f"{replies[0]}\n\n<information>") and text.endswith(replies[1])


@pytest.mark.parametrize("name", CHAT)
def test_a_plan_stands_in_any_template(name: str) -> None:
    """Even in a template that begins the thoughts itself. What a node found is learnt, results are not."""
    tokenizer = bytes_tokenizer(name)
    plan = "so</think><search>\nNodes:\nA: xyz (General)\nB: of $A (General)\nEdges:\nA -> B\n</search>"
    replies = [plan, "<found>A is Clara</found>", "<answer>Bath</answer>"]
    game = partial(r_search, tools=("General",), template=turn_frame(tokenizer, "tiny"))
    episode, trace = played(tokenizer, game, replies)
    assert episode.answer == "Bath" and episode.outcome.faults == () and len(episode.steps) == 2 and trace.whole
    assert tokenizer.decode(trace.prompt).rstrip().endswith("<think>")
    assert tokenizer.decode(trace.prompt[-20:]).count("<think>") == 1, "one that the template began is not begun again"
    text = tokenizer.decode([token for token, own in zip(trace.ids, trace.own, strict=True) if not own])
    results = [
        f"\n<result>\n{asked}\nDoc 1(Title: ) {SHOWN}\n</result>\n"
        for asked in ("A (General): xyz", "B (General): of Clara")
    ]
    assert text == f"{results[0]}What did A find?\n{results[1]}", "without the end tags, which the model said"
    last = episode.turns[2].completion
    assert last.context + last.ids == trace.prompt + trace.ids, "one text, continued"


@pytest.mark.parametrize("name", CHAT)
def test_a_conversation_is_trained_as_sampled_or_refused_in_a_line(name: str) -> None:
    tokenizer = bytes_tokenizer(name)
    if name in REFUSED:
        with pytest.raises(ModelError, match=f"model tiny .*{REFUSED[name]}.*; use pipeline search_r1") as error:
            check_conversations(tokenizer, "tiny")
        assert "\n" not in str(error.value)
        return
    check_conversations(tokenizer, "tiny")
    after = turn_frame(tokenizer, "tiny")[1].rstrip()
    begun = "<think>\n" if after.endswith("<think>") else ""
    thought = "" if after.endswith("</think>") else THOUGHT.removeprefix(begun)
    replies = [thought + CALL, "Final answer: xyz<eos>"]
    episode, trace = played(tokenizer, partial(react_passages, max_searches=1), replies)
    assert episode.answer == "xyz" and trace.whole
    first, last = (writer_of(tokenizer).render(turn.request) for turn in episode.turns)
    assert tokenizer.decode(trace.prompt) == first
    assert tokenizer.decode(trace.prompt + trace.ids) == f"{last}Final answer: xyz<eos>", "as evaluation reads it"
    untidy = f"{begun and 'hm </think>'}   hm  <eos>"  # a template would tidy this up
    episode, trace = played(tokenizer, partial(react_passages, max_searches=1), [untidy, "Final answer: xyz<eos>"])
    assert tokenizer.decode(trace.ids).startswith(untidy) and episode.outcome.faults[0] == "no action"


def test_settings_are_set_in_the_template_for_good() -> None:
    """Qwen3 is told not to think: an empty thought precedes its turns, whoever loads the tokenizer later."""
    tokenizer = bytes_tokenizer("qwen3")
    plain = turn_frame(tokenizer, "tiny")
    silent = add_settings(tokenizer, {"enable_thinking": False})
    assert turn_frame(silent, "tiny") == (plain[0], plain[1] + "<think>\n\n</think>\n\n")
    once = silent.chat_template
    assert add_settings(silent, {"enable_thinking": False}).chat_template == once and keeps_turns(silent)
    llama = add_settings(bytes_tokenizer("llama3_2"), {})
    assert "26 Jul 2024" in turn_frame(llama, "tiny")[0], "not today: that prompt would be another one tomorrow"


def test_a_template_that_frames_no_turn_is_one_line() -> None:
    shown = "{{ messages[0].content }}"
    for template, line in (
        (None, "has no chat template, which pipeline.template chat asks for; set plain"),
        ("{{ raise_exception('no users') }}", "writes no turn of a user: no users"),
        ("{{ messages[0].content | upper }}" + shown * 2, "does not show the turn"),
    ):
        tokenizer = bytes_tokenizer("qwen3")
        tokenizer.chat_template = template
        with pytest.raises(ModelError, match=line):
            turn_frame(tokenizer, "tiny")


KEEPING = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
DROPPING = KEEPING.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
BEGINNING = KEEPING.replace("<|assistant|>\n{% endif", "<|assistant|>\n<think>\n{% endif").replace(
    "{{ m.content }}", "{{ ('<think>\n' if m.role == 'assistant' else '') + m.content }}"
)
"""Its prompts end with the beginning of a thought."""
TIDYING = KEEPING.replace(
    "{{ m.content }}",
    "{% if '</think>' in m.content %}<think>\n{{ m.content.split('</think>')[0].split('<think>')[-1].strip() }}\n"
    "</think>\n\n{{ m.content.split('</think>')[1].strip() }}{% else %}{{ m.content }}{% endif %}",
)
"""Keeps well-formed thoughts and rewrites others."""


def test_whether_a_template_keeps_turns_and_one_that_trl_has_no_other_for_stays() -> None:
    tokenizer, kept = bytes_tokenizer("qwen3"), (KEEPING, BEGINNING, TIDYING)
    for template in (*kept, DROPPING, None, "{{ raise_exception('no') }}", "{{ messages[9].content.x }}"):
        tokenizer.chat_template = template
        assert keeps_turns(tokenizer) is (template in kept), template
        assert keep_turns(tokenizer).chat_template == template


def test_a_loaded_model_has_the_kept_template_and_saves_it(tmp_path: Path) -> None:
    """Settings are saved too: a program that loads a thinking model could not tell it not to think."""
    model, tokenizer = load_model(str(save_letters(tmp_path / "letters", spread=0.3, printable=True)))
    tokenizer.chat_template = chat_template_utils.qwen3_chat_template
    for saved in (model, tokenizer):
        saved.save_pretrained(tmp_path / "thinking")
    loaded = load_model(str(tmp_path / "thinking"))[1]
    assert loaded.chat_template == chat_template_utils.qwen3_training_chat_template
    assert "think" not in turn_frame(loaded, "tiny")[1]
    loaded.save_pretrained(tmp_path / "again")
    assert keeps_turns(AutoTokenizer.from_pretrained(tmp_path / "again"))
    silent_tokenizer = load_model(str(tmp_path / "thinking"), chat_template_kwargs={"enable_thinking": False})[1]
    assert turn_frame(silent_tokenizer, "tiny")[1].endswith("<think>\n\n</think>\n\n")


def test_a_template_that_refuses_the_messages_is_one_line() -> None:
    tokenizer = bytes_tokenizer("qwen3")
    tokenizer.chat_template = "{{ raise_exception('System role\n not supported') }}"
    with pytest.raises(ModelError, match="of generator tiny cannot write these messages: System role not") as error:
        writer_of(tokenizer).encode(Generate(({"role": "system", "content": "x"},)))
    assert "\n" not in str(error.value)
