"""Chat templates that keep earlier turns as they are.

A conversation that is trained on is one growing text. Templates of models that think (Qwen3's) leave the thoughts out
of all turns but the last, so that the next turn would go on from another text than the one that was sampled. TRL ships
such templates in a form that keeps them.
"""

from contextlib import suppress
from typing import Any

from jinja2 import TemplateError

_THOUGHT, _REPLY = "<think>\n", "one\n</think>\n\ntwo"


def keeps_turns(tokenizer: Any) -> bool:
    """Return whether the text of a conversation goes on from what the model read and wrote, thoughts included."""
    if not tokenizer.chat_template:
        return False
    asked = [{"role": "user", "content": "zero"}]
    try:
        opening = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        begun = opening.rstrip().endswith(_THOUGHT.rstrip())  # the template itself begins the thoughts
        reply = _REPLY if begun else f"{_THOUGHT}{_REPLY}"
        talk = [*asked, {"role": "assistant", "content": reply}, {"role": "user", "content": "three"}]
        text: str = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    except (TemplateError, TypeError, ValueError):  # it is told where messages are rendered
        return False
    return text.startswith(f"{opening}{reply}")


def keep_turns(tokenizer: Any) -> Any:
    """Give a tokenizer that was just loaded TRL's template, where that one keeps turns and its own does not."""
    if not tokenizer.chat_template or keeps_turns(tokenizer):
        return tokenizer
    from trl.chat_template_utils import get_training_chat_template  # takes a second to import; most need none

    own = tokenizer.chat_template
    with suppress(TemplateError, TypeError, ValueError):  # TRL has none for it
        tokenizer.chat_template = get_training_chat_template(tokenizer) or own
    if not keeps_turns(tokenizer):
        tokenizer.chat_template = own
    return tokenizer
