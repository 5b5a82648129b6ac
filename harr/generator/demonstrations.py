"""Demonstrations: tokenized texts, of which a language model learns only the tokens it must write.

A line of a demonstrations file is one of two:

- a conversation, ``{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}, ...]}``: turns of the
  assistant are learnt, each from where the chat template prompts for it to its end token;
- a text in pieces, ``{"pieces": [["Question: ...", false], ["<think> ...", true], ...]}``: pieces marked true are
  learnt. Each piece is encoded separately, as texts of model and environment are in play.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from harr.compute.trl import Tokens
from harr.errors import CorpusError, ModelError
from harr.io.jsonl import Row, read_rows
from harr.params.functions import function_of
from harr.params.generator import WarmstartParams
from harr.rag.generation.chat_template import turn_frame
from harr.rag.generation.local_model import LanguageModel
from harr.types import Generate

Piece = tuple[str, bool]
"""A part of a text; True if the model learns to write it."""


def read_demonstrations(path: Path, language_model: LanguageModel) -> list[Tokens]:
    """Return the demonstrations in a JSON Lines file, in order.

    Raises:
        CorpusError: the file is missing or empty, or a row is neither of the two, has nothing to learn, or does not fit
            the chat template; names the line. ModelError: conversations for a model without a chat template.
    """
    if not path.is_file():
        raise CorpusError(
            f"{path} is missing; set generator.warmstart.demonstrations to a file of JSON lines, or to a function that makes traces"
        )
    rows = encode_rows(read_rows(path), language_model)
    if not rows:
        raise CorpusError(f"{path} holds no demonstration; expected a JSON object a line, with messages or pieces")
    return rows


def encode_rows(rows: Iterable[Row], language_model: LanguageModel) -> list[Tokens]:
    """Return demonstrations as tokens, in order; raises like :func:`read_demonstrations`."""
    return [_encode_row(row, language_model) for row in rows]


def make_demonstrations(params: WarmstartParams, seed: int, language_model: LanguageModel) -> list[Tokens]:
    """Return the traces of the function ``generator.warmstart.demonstrations``.

    Raises:
        ParamsError: it cannot be imported, or takes other arguments.
    """
    shape = "makes traces: (number, template, seed) -> a list of traces, each a list of pieces (text, learnt)"
    make = function_of(params.demonstrations, key="generator.warmstart.demonstrations", shape=shape, takes=3)
    template = (
        turn_frame(language_model.tokenizer, language_model.name) if params.template == "chat" else params.template
    )
    return [encode(language_model, pieces, begins=True) for pieces in make(params.traces, template, seed)]


def encode(language_model: LanguageModel, pieces: Sequence[Piece], *, begins: bool) -> Tokens:
    """Return the tokens of a text in pieces; if it ``begins``, with the tokenizer's first token."""
    ids: list[int] = []
    learnt_flags: list[bool] = []
    for place, (text, learnt) in enumerate(pieces):
        piece_ids: list[int] = language_model.tokenizer(text, add_special_tokens=begins and place == 0)["input_ids"]
        ids += piece_ids
        learnt_flags += [learnt] * len(piece_ids)
    return ids, learnt_flags


def _encode_row(row: Row, language_model: LanguageModel) -> Tokens:
    keys = [key for key in ("messages", "pieces") if row.values.get(key)]
    if len(keys) != 1:
        what = "both messages and pieces" if keys else "neither messages nor pieces"
        raise CorpusError(f"{row.place}: a demonstration with {what}; expected one of the two, a list with entries")
    parts = row.values[keys[0]]
    if keys == ["pieces"]:
        ids, learnt_flags = encode(language_model, _pieces(parts, row.place), begins=True)
    else:
        ids, learnt_flags = encode(
            language_model, _turns(_messages(parts, row.place), language_model, row.place), begins=False
        )
    if not any(learnt_flags[1:]):  # nothing precedes the first token, so it cannot be learnt
        raise CorpusError(
            f"{row.place}: nothing is learnt from this demonstration; "
            "mark a piece true, or give a turn of role assistant"
        )
    return ids, learnt_flags


def _pieces(parts: Any, place: str) -> list[Piece]:
    if not isinstance(parts, list) or not all(
        isinstance(part, list) and [type(value) for value in part] == [str, bool] for part in parts
    ):
        raise CorpusError(f"{place}: pieces is {str(parts)[:60]!r}; expected a list of [text, true or false]")
    return [(text, learnt) for text, learnt in parts]


def _messages(parts: Any, place: str) -> list[dict[str, str]]:
    if not isinstance(parts, list) or not all(
        isinstance(part, dict) and all(isinstance(part.get(key), str) for key in ("role", "content")) for part in parts
    ):
        raise CorpusError(f"{place}: messages is {str(parts)[:60]!r}; expected a list of objects with role and content")
    return [{"role": part["role"], "content": part["content"]} for part in parts]


def _turns(messages: list[dict[str, str]], language_model: LanguageModel, place: str) -> list[Piece]:
    """Return a conversation in pieces: the text before each of the model's turns, and that turn with its end token."""
    pieces: list[Piece] = []
    read_so_far = ""
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        try:
            context = language_model.render(Generate(tuple(messages[:number])))
            whole: str = language_model.tokenizer.apply_chat_template(messages[: number + 1], tokenize=False)
        except (TemplateError, ModelError) as error:
            if not language_model.tokenizer.chat_template:
                raise
            raise CorpusError(f"{place}: the model's chat template refuses this conversation: {error}") from None
        if not context.startswith(read_so_far) or not whole.startswith(context):
            raise CorpusError(
                f"{place}: the model's chat template changes earlier text at message {number + 1}, so the model would "
                "learn from what it never reads; leave thoughts of earlier turns out, or give pieces"
            )
        turn = _cut_turn(whole[len(context) :], language_model)
        pieces += [(context[len(read_so_far) :], False), (turn, True)]
        read_so_far = context + turn
    if pieces and not any(pieces[-1][0].endswith(end) for end in _end_texts(language_model)):
        pieces[-1] = (pieces[-1][0] + _end_texts(language_model)[0], True) if _end_texts(language_model) else pieces[-1]
    return pieces


def _cut_turn(text: str, language_model: LanguageModel) -> str:
    """Return the part of a turn that the model writes: up to its end token, without the template's line break."""
    ends = [place + len(end) for end in _end_texts(language_model) if (place := text.rfind(end)) >= 0]
    return text[: max(ends)] if ends else text


def _end_texts(language_model: LanguageModel) -> list[str]:
    return [language_model.tokenizer.decode([end]) for end in sorted(language_model.ends)]
