"""A budget of thoughts: a thought that is too long is closed, and the model then acts.

A turn of a growing text is requested in two parts: the thought, up to its end or the budget, and the rest. The tag that
closes a thought is the environment's and has no loss; all else was sampled.
"""

from collections.abc import Generator as PyGenerator
from dataclasses import replace
from typing import Any

from harr.types import Generate, Outcome, Pipeline, Question, Request, TruncatedCompletion

BEGIN, END = "<think>", "</think>"


def limit_thoughts(pipeline: Pipeline, tokens: int) -> Pipeline:
    """Return a pipeline of raw text whose thoughts have at most so many tokens each."""

    def play(question: Question) -> PyGenerator[Request, Any, Outcome]:
        moves = pipeline(question)
        answer: Any = None
        while True:
            try:
                request = moves.send(answer)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            answer = (
                (yield from _write_turn(request, tokens))
                if isinstance(request, Generate) and request.prompt
                else (yield request)
            )

    return play


def _write_turn(request: Generate, tokens: int) -> PyGenerator[Request, Any, str]:
    """Request a thought and, if there was one, the rest; return both as one completion."""
    shorter = replace(request, stop=(*request.stop, END), max_tokens=tokens)
    thought: str = yield shorter
    if not is_thinking(request, shorter.cut(thought)):
        reply: str = thought
        if shorter.stopped(thought):
            return reply
        beginning = shorter.cut(thought)  # it acts, and its action is longer than a thought may be
    else:
        beginning = shorter.cut(thought) + END
    reply = yield replace(request, prompt=request.prompt + beginning)
    text = beginning + request.cut(reply)
    return text if request.stopped(reply) else TruncatedCompletion(text)


def is_thinking(request: Generate, text: str) -> bool:
    """Return whether the turn so far is an unfinished thought without the beginning of an action.

    >>> request = Generate(prompt="Question: Who?", stop=("</search>",))
    >>> [is_thinking(request, text) for text in ("<think>The founder", "<think>I <search>founder", "<search>founder")]
    [True, False, False]
    """
    has_begun = request.prompt.rstrip().endswith(BEGIN) or BEGIN in text
    return has_begun and not any(word.replace("</", "<") in text for word in request.stop)
