"""Semantic similarity of an answer to the gold answers: cosine of an encoder's vectors."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from harr.types import Episode, Value

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""A function from texts to unit vectors, (n, D)."""


def answer_similarities(encode: Encode, episodes: Sequence[Episode]) -> list[Value]:
    """Return the cosine of each answer with the nearest gold answer, at least 0; one ``encode`` call for all of them.

    0.0 without an answer, None for a question without gold answers.
    """
    answered = [episode for episode in episodes if episode.answer and episode.question.answers]
    texts = list(dict.fromkeys(text for e in answered for text in (e.answer or "", *e.question.answers)))
    place = {text: row for row, text in enumerate(texts)}
    vectors_TD = encode(texts) if texts else np.empty((0, 1), dtype=np.float32)
    values: list[Value] = []
    for episode in episodes:
        if not episode.question.answers:
            values.append(None)
        elif not episode.answer:
            values.append(0.0)
        else:
            golds_ND = vectors_TD[[place[gold] for gold in episode.question.answers]]
            cosine = float((golds_ND @ vectors_TD[place[episode.answer]]).max())
            values.append(min(1.0, max(0.0, cosine)))
    return values
