"""The test stories in documents of any length, between sentences not used in training."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from harr.errors import CorpusError
from harr.params.fields import is_dotted
from harr.types import Passage, Question
from harr_lengths.stories import LongDocuments, fact_ids, question_id, question_of, stories

_SAMPLE = 1000
SHARED = 20_000
"""Number of shared noise sentences: longer documents all have the same noise, shorter ones each a part of these."""


def tokens_per_sentence(noise: Sequence[str], count_tokens: Callable[[Sequence[str]], NDArray[np.int64]]) -> float:
    """Return the mean tokens of 1,000 noise sentences, without the two that a tokenizer puts around a text.

    >>> tokens_per_sentence(["one two", "one"], lambda texts: np.array([2 + len(text.split()) for text in texts]))
    1.5
    """
    sample = noise[:: max(1, len(noise) // _SAMPLE)]
    return float(count_tokens(sample).mean() - count_tokens([""]).mean())


def sentences_for(tokens: int, mean: float) -> int:
    """Return how many sentences of ``mean`` tokens each have about ``tokens`` tokens, at least one.

    >>> sentences_for(1000, 3.0), sentences_for(1, 3.0)
    (333, 1)
    """
    return max(1, int(tokens / mean))


def noise_for(data: LongDocuments, sentences: int) -> list[str]:
    """Return noise for documents of ``sentences`` sentences, from the half not used in training.

    Raises:
        CorpusError: the file is missing or wrong.
    """
    noise = data.noise(sentences)
    return noise[len(noise) // 2 :][: max(sentences, SHARED)]


def check_lengths(data: LongDocuments, lengths: Iterable[int]) -> None:
    """Check that every test story fits, and that there is enough noise, for documents of all ``lengths``.

    Raises:
        CorpusError: a document is shorter than a story, or the noise shorter than a document; says which.
    """
    facts = [len(story.facts) for story in stories(data)["test"]]
    if min(lengths) < max(facts):
        raise CorpusError(f"length {min(lengths)}: a story has {max(facts)} facts; ask for documents at least as long")
    needed = max(lengths) - min(facts)
    if not is_dotted(data.params.noise) and (count := len(noise_for(data, max(lengths)))) < needed:
        raise CorpusError(
            f"length {max(lengths)}: needs {needed} sentences of noise, found {count} in the second half of "
            f"{data.params.noise} (training has the first); name a longer text in download.settings.noise or a shorter length"
        )


def stretch_stories(
    data: LongDocuments, sentences: int, noise: Sequence[str]
) -> Iterator[tuple[Question, tuple[Passage, ...]]]:
    """Yield the test stories, each in a document of ``sentences`` sentences, with its passages in order.

    ``noise`` is that of :func:`noise_for`. Only one document exists at a time.

    Raises:
        CorpusError: the noise is shorter than the document, or the document shorter than a story.
    """
    passages = {f"n{row:07d}": Passage(f"n{row:07d}", text) for row, text in enumerate(noise)}
    ids = list(passages)
    for number, story in enumerate(stories(data)["test"]):
        question = question_of(data, question_id(data, "test", number), story, ids, sentences)
        facts = {
            name: Passage(name, text) for name, text in zip(fact_ids(question.id, story), story.facts, strict=True)
        }
        yield question, tuple(facts.get(name) or passages[name] for name in question.candidate_ids)
