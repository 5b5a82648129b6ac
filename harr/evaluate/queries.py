"""Figures of written queries: was one asked again, or did it hold an answer that was known beforehand?"""

from collections.abc import Callable, Sequence

from harr.characters import normalise
from harr.types import Episode, Passage


def writes_queries(episodes: Sequence[Episode]) -> bool:
    """Return whether anything but the question itself was ever searched for: else there is no query to audit."""
    return any(step.search.query != episode.question.text for episode in episodes for step in episode.steps)


def repeated_queries(episode: Episode) -> float | None:
    """Return the share of the searches whose query its source was asked before; case, articles and punctuation apart.

    None without searches.

    >>> from harr.types import Question, Retrieval, Search, Step
    >>> question = Question("q", "Where was the maker of Acme born?")
    >>> asked = ("Who made Acme?", "who made acme", "Where was Ada born?", "Who made Acme?")
    >>> repeated_queries(Episode(question, tuple(Step(Search(question, query), Retrieval(())) for query in asked)))
    0.5
    """
    queries = [(step.search.tool, normalise(step.search.query)) for step in episode.steps]
    return 1.0 - len(set(queries)) / len(queries) if queries else None


def answer_in_query(episode: Episode) -> float | None:
    """Return 1.0 where a query has a gold answer that neither the question nor any earlier passage has, else 0.0.

    The model knew or guessed the answer: what it then found shows no skill in searching. None without searches, and
    without a gold answer of two words or four characters: shorter ones (yes, no, 12) stand in queries by chance.
    """
    golds = [gold for gold in map(normalise, episode.question.answers) if " " in gold or len(gold) >= 4]
    if not golds or not episode.steps:
        return None
    return float(names_unread_word(episode, golds, lambda passage: passage.content))


def names_unread_word(episode: Episode, words: Sequence[str], text_of: Callable[[Passage], str]) -> bool:
    """Return whether a query uses one of these normalised ``words`` before the question or a passage does.

    ``text_of``: the part of a retrieved passage that counts as read.
    """
    read = [episode.question.text]
    for step in episode.steps:
        unread = [word for word in words if holds(step.search.query, word)]
        if any(not any(holds(text, word) for text in read) for word in unread):
            return True
        read += [text_of(passage) for passage in step.retrieval.passages]
    return False


def holds(text: str, gold: str) -> bool:
    """Return whether a text holds normalised words, as whole words."""
    return f" {gold} " in f" {normalise(text)} "
