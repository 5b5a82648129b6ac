"""Cut long texts into passages by tokens, at the ends of sentences."""

from collections.abc import Callable, Iterator, Sequence

import regex

_STOP = regex.compile(r"[\p{STerm}--\p{ASCII}]", regex.V1)
"""A full stop of a script that may set no space after it."""
Spans = Callable[[str], Sequence[tuple[int, int]]]
"""Start and end of every token of a text, in characters, without special tokens."""


def chunks(text: str, spans: Spans, limit: int, *, header: str = "") -> Iterator[str]:
    """Cut ``text`` into parts of at most ``limit`` tokens each, including the ``header`` that will precede them.

    A part ends at the last full stop or line end that fits; a sentence that is too long is cut between words, a word
    that is too long between tokens. The parts, in order, are the whole text except for surrounding white space.

    >>> words = lambda text: [(m.start(), m.end()) for m in __import__("re").finditer(r"[a-z]+|[.]", text, 2)]
    >>> list(chunks("Ada is old. Bob is young. He runs. And so on and on and on", words, 8))
    ['Ada is old. Bob is young.', 'He runs.', 'And so on and on and on']
    """
    tokens = spans(text)
    start = 0
    while start < len(tokens):
        room = max(1, limit - len(spans(header)))
        while True:
            end = _end(text, tokens, start, room)
            part = text[tokens[start][0] : tokens[end - 1][1]].strip()
            # After a header, or cut within a word, a text may have other tokens than within the whole.
            over = len(spans(header + part)) - limit
            if over <= 0 or end - start == 1:
                break
            room = max(1, min(room, end - start) - over)
        yield part
        start = end


def _end(text: str, tokens: Sequence[tuple[int, int]], start: int, room: int) -> int:
    """Return the token after the last one of the part that starts at ``start``."""
    full = min(start + room, len(tokens))
    if full == len(tokens):
        return full
    words = 0
    for end in range(full, start, -1):
        here = tokens[end - 1][1]
        if _STOP.match(text[here - 1]):
            return end
        if tokens[end][0] == here:  # within a word
            continue
        if text[here - 1] == "." or text[here] == "\n":
            return end
        words = words or end
    return words or full
