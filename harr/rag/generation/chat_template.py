"""Chat templates: keeping earlier turns, fixed variables, and the text around a first turn.

Training needs a conversation to be one growing text. Templates of thinking models (Qwen3's) drop the thoughts of all
turns but the last, so the next turn would continue a different text from the sampled one. TRL ships versions of such
templates that keep the thoughts.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from jinja2 import TemplateError

from harr.errors import ModelError, one_line

_THOUGHT, _REPLY = "<think>\n", "one\n</think>\n\ntwo"
_MARK = "\ue000turn\ue000"
_UNREADABLE = (TemplateError, TypeError, ValueError)
_LITERALS = {"true": "true", "false": "false", "null": "none"}
FIXED = {"date_string": "26 Jul 2024"}
"""The default date of Llama's templates, instead of today's: text that changes daily would differ from training."""


def keeps_turns(tokenizer: Any) -> bool:
    """Return whether a conversation's text continues what the model read and wrote, thoughts included."""
    if not tokenizer.chat_template:
        return False
    try:
        return _continues(tokenizer, [{"role": "user", "content": "zero"}])
    except _UNREADABLE:  # rendering messages reports it
        return False


def _continues(tokenizer: Any, messages: list[dict[str, str]]) -> bool:
    opening = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    begins_thoughts = opening.rstrip().endswith(_THOUGHT.rstrip())  # the template itself opens the thoughts
    reply = _REPLY if begins_thoughts else f"{_THOUGHT}{_REPLY}"
    reply = "two" if opening.rstrip().endswith("</think>") else reply  # thinking is switched off
    conversation = [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": "three"}]
    text: str = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    return text.startswith(f"{opening}{reply}")


def keep_turns(tokenizer: Any) -> Any:
    """Give a tokenizer TRL's chat template if that keeps turns and its own does not."""
    if not tokenizer.chat_template or keeps_turns(tokenizer):
        return tokenizer
    from trl.chat_template_utils import get_training_chat_template  # takes a second to import; most need none

    original = tokenizer.chat_template
    with suppress(*_UNREADABLE):  # TRL has none for it
        tokenizer.chat_template = get_training_chat_template(tokenizer) or original
    if not keeps_turns(tokenizer):
        tokenizer.chat_template = original
    return tokenizer


def check_conversations(tokenizer: Any, model: str) -> None:
    """Raise if conversations of system, user and assistant cannot be trained on as sampled.

    Raises:
        ModelError: the model has no chat template, or one that rejects such messages or rewrites earlier turns.
    """
    remedy = "use pipeline search_r1 or r_search with template: chat, or another model"
    if not tokenizer.chat_template:
        raise ModelError(f"model {model} has no chat template, and the pipeline is a conversation; {remedy}")
    roles = [{"role": "system", "content": "how"}, {"role": "user", "content": "zero"}]
    try:
        keeps = _continues(tokenizer, roles)
    except _UNREADABLE as error:
        raise ModelError(
            f"the chat template of model {model} takes no system, user and assistant in turn: {one_line(error)}; "
            f"{remedy}"
        ) from None
    if not keeps:
        raise ModelError(
            f"the chat template of model {model} does not keep earlier turns as they were sampled (it drops or moves "
            f"thoughts), so they cannot be trained on; {remedy}"
        )


def add_settings(tokenizer: Any, settings: Mapping[str, Any]) -> Any:
    """Set variables of a chat template in the template itself, so that they apply wherever it is loaded.

    A second call changes nothing; ``settings`` are JSON values, such as ``{"enable_thinking": False}``.
    """
    if not tokenizer.chat_template:
        return tokenizer
    fixed = {"date_string": FIXED["date_string"]} if "date_string" in tokenizer.chat_template else {}
    lines = [f"{{%- set {name} = {_literal(value)} -%}}" for name, value in (fixed | dict(settings)).items()]
    missing = [line for line in lines if line not in tokenizer.chat_template]
    tokenizer.chat_template = "".join(missing) + tokenizer.chat_template
    return tokenizer


def _literal(value: Any) -> str:
    """Return a JSON value in Jinja's notation.

    >>> _literal(False), _literal({"a": [None, "true"]})
    ('false', '{"a": [none, "true"]}')
    """
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(str(key))}: {_literal(part)}" for key, part in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_literal, value)) + "]"
    text = json.dumps(value)
    return _LITERALS.get(text, text)


def turn_frame(tokenizer: Any, model: str) -> tuple[str, str]:
    """Return a chat template's text before and after the first user turn, up to the start of the model's turn.

    The token that the tokenizer itself puts before every text is left out.

    Raises:
        ModelError: the model has no chat template, or one that alters that turn.
    """
    if not tokenizer.chat_template:
        raise ModelError(
            f"model {model} has no chat template, which pipeline.template chat asks for; set plain, or name a model "
            "tuned for chat"
        )
    try:
        text: str = tokenizer.apply_chat_template(
            [{"role": "user", "content": _MARK}], tokenize=False, add_generation_prompt=True
        )
    except _UNREADABLE as error:
        raise ModelError(
            f"the chat template of model {model} writes no turn of a user: {one_line(error)}; set pipeline.template: "
            "plain, or name another model"
        ) from None
    before, mark, after = text.partition(_MARK)
    if not mark or _MARK in after:
        raise ModelError(
            f"the chat template of model {model} does not show the turn of a user as it is; set pipeline.template: "
            "plain, or name another model"
        )
    first = tokenizer.bos_token
    begins = bool(first) and tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    return before.removeprefix(first) if begins else before, after
