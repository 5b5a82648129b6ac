"""A budget of thoughts: a thought that is too long is ended for the model, which then goes on to act.

A turn of a growing text is asked for in two: the thought, up to its end or the budget, and what follows. The tag that
ends a thought for the model is the environment's, and nothing is learnt from it; all else is what was sampled.
"""

from collections.abc import Generator as PyGenerator
from dataclasses import replace
from typing import Any

from harr.types import Generate, Outcome, Pipeline, Question, Request, TruncatedCompletion

BEGIN, END = "<think>", "</think>"


def thinking(pipeline: Pipeline, tokens: int) -> Pipeline:
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
                (yield from _written(request, tokens))
                if isinstance(request, Generate) and request.prompt
                else (yield request)
            )

    return play


def _written(request: Generate, tokens: int) -> PyGenerator[Request, Any, str]:
    """Ask for a thought and, where there was one, for what follows it; return both as one completion."""
    asked = replace(request, stop=(*request.stop, END), max_tokens=tokens)
    thought: str = yield asked
    if not in_thought(request, asked.cut(thought)):
        rest: str = thought
        if asked.stopped(thought):
            return rest
        begun = asked.cut(thought)  # it acts, and its action is longer than a thought may be
    else:
        begun = asked.cut(thought) + END
    rest = yield replace(request, prompt=request.prompt + begun)
    text = begun + request.cut(rest)
    return text if request.stopped(rest) else TruncatedCompletion(text)


def in_thought(request: Generate, text: str) -> bool:
    """Return whether a turn up to here is a thought that has not ended, in which nothing was begun that a stop ends.

    >>> asked = Generate(prompt="Question: Who?", stop=("</search>",))
    >>> [in_thought(asked, text) for text in ("<think>The founder", "<think>I <search>founder", "<search>founder")]
    [True, False, False]
    """
    inside = request.prompt.rstrip().endswith(BEGIN) or BEGIN in text
    return inside and not any(word.replace("</", "<") in text for word in request.stop)
