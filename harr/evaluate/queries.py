"""Audits of written queries: was one repeated, or did it contain an answer that was known beforehand?"""

from collections.abc import Callable, Sequence

from harr.characters import normalise
from harr.types import Episode, Passage


def writes_queries(episodes: Sequence[Episode]) -> bool:
    """Return whether anything but the question itself was ever searched for; otherwise there is no query to audit."""
    return any(step.search.query != episode.question.text for episode in episodes for step in episode.steps)


def repeated_queries(episode: Episode) -> float | None:
    """Return the share of searches that repeat a query to the same source, ignoring case, articles and punctuation.

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
    """Return 1.0 if a query has a gold answer that neither the question nor any earlier passage has, otherwise 0.0.

    The model then knew or guessed the answer, so what it found shows no skill in searching. None without searches, or
    without a gold answer of two words or four characters: shorter ones (yes, no, 12) occur in queries by chance.
    """
    golds = [gold for gold in map(normalise, episode.question.answers) if " " in gold or len(gold) >= 4]
    if not golds or not episode.steps:
        return None
    return float(names_unread_word(episode, golds, lambda passage: passage.content))


def names_unread_word(episode: Episode, words: Sequence[str], text_of: Callable[[Passage], str]) -> bool:
    """Return whether a query uses one of these normalised ``words`` before the question or a passage does.

    ``text_of`` returns the part of a retrieved passage that counts as read.
    """
    read = [episode.question.text]
    for step in episode.steps:
        unread = [word for word in words if holds(step.search.query, word)]
        if any(not any(holds(text, word) for text in read) for word in unread):
            return True
        read += [text_of(passage) for passage in step.retrieval.passages]
    return False


def holds(text: str, gold: str) -> bool:
    """Return whether a text contains a normalised string as whole words."""
    return f" {gold} " in f" {normalise(text)} "
