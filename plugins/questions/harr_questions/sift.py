"""Reasons to drop a written question: each check returns one, or "" if it finds none."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harr.characters import normalise, states_answer
from harr.io.files import fingerprint
from harr.rag.scoring.text import token_f1
from harr.types import Passage

LONGEST_ANSWER = 12
"""Maximum number of words in an answer."""
COPIED, COPIED_SHARE, SHORTEST_COPY = 8, 0.6, 5
"""A question copies if so many words in a row, or such a share of its own and at least five, are in a passage."""
ALIKE = 0.8
"""Share of common words from which two questions are the same."""
RIGHT = 0.6
"""Token F1 from which two answers are the same."""
POINTS = re.compile(
    r"\b(according to|(described|mentioned|stated|listed|given|said|discussed|shown|named|provided) (in|by))"
    r" (the|this|these|that) (passage|text|document|excerpt|article|paragraph|section|snippet|context)s?\b"
    r"|\b(this|these|above|following|given|provided) (passage|text|document|excerpt|article|paragraph|section|snippet)"
    r"|\bpassages? \[?\d",
    re.IGNORECASE,
)
"""Words in a question that only its writer, with the passage at hand, can understand."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A question as it was written, and the passages it was written from, in the order of its hops."""

    question: str
    answer: str
    passages: tuple[Passage, ...]
    split: str

    @property
    def id(self) -> str:
        """Return an id derived from question and passages."""
        return f"q-{fingerprint([self.question, *(passage.id for passage in self.passages)])[:12]}"

    @property
    def row(self) -> dict[str, object]:
        """Return the row for a file of questions; its ``passages`` are for a human reader only."""
        return {
            "id": self.id,
            "question": self.question,
            "answers": [self.answer],
            "supporting": [passage.id for passage in self.passages],
            "type": f"{len(self.passages)} hop" + "s" * (len(self.passages) > 1),
            "passages": [passage.content for passage in self.passages],
        }


def fault_of(draft: Draft) -> str:
    """Return what is wrong with the wording of a question.

    >>> passage = Passage("p", "The pump P7 was built by Acme in Ashford in 2019.", "Pumps")
    >>> fault_of(Draft("Who made the pump P7?", "Acme", (passage,), "train"))
    ''
    >>> fault_of(Draft("Where did Acme build the P7?", "Acme", (passage,), "train"))
    'the answer stands in the question'
    >>> fault_of(Draft("The pump P7 was built by whom in Ashford?", "Bob", (passage,), "train"))
    'the answer stands in none of its passages'
    """
    contents = [passage.content for passage in draft.passages]
    if not draft.question or not draft.answer:
        return "no question, or no answer"
    if len(draft.answer.split()) > LONGEST_ANSWER:
        return f"the answer has more than {LONGEST_ANSWER} words"
    if not any(states_answer(content, [draft.answer]) for content in contents):
        return "the answer stands in none of its passages"
    if states_answer(draft.question, [draft.answer]):
        return "the answer stands in the question"
    if POINTS.search(draft.question):
        return "the question speaks of its passage"
    if any(copies(draft.question, content) for content in contents):
        return "the question copies its passage"
    return ""


def copies(question: str, text: str) -> bool:
    """Return whether a question repeats a sentence of a text, word for word.

    >>> copies("Is it that the pump P7 was built by Acme?", "The pump P7 was built by Acme in Ashford.")
    True
    >>> copies("Who made the pump P7?", "The pump P7 was built by Acme in Ashford.")
    False
    """
    words, within = normalise(question).split(), f" {normalise(text)} "
    run = min(COPIED, max(SHORTEST_COPY, math.ceil(COPIED_SHARE * len(words))))
    return any(f" {' '.join(words[start : start + run])} " in within for start in range(len(words) - run + 1))


class Asked:
    """The questions accepted so far, over all splits, to find those that are the same in other words."""

    def __init__(self) -> None:
        self._words: list[frozenset[str]] = []
        self._ids: list[str] = []
        self._having: dict[str, list[int]] = {}

    def same(self, draft: Draft) -> str:
        """Return the id of a question with nearly the same words in any order, else ""."""
        words = _words(draft.question)
        near = sorted({place for word in words for place in self._having.get(word, ())})
        return next((self._ids[place] for place in near if _alike(words, self._words[place])), "")

    def add(self, draft: Draft) -> None:
        """Add a question."""
        words = _words(draft.question)
        for word in words:
            self._having.setdefault(word, []).append(len(self._ids))
        self._words.append(words)
        self._ids.append(draft.id)


def _words(question: str) -> frozenset[str]:
    return frozenset(normalise(question).split())


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= ALIKE * len(one | other)


def gives(said: str, draft: Draft) -> bool:
    """Return whether a reply gives the answer.

    >>> gives("in Ashford, Kent", Draft("Where?", "Ashford", (), "train")), gives("", Draft("Where?", "Bath", (), ""))
    (True, False)
    """
    return token_f1(said, [draft.answer]) >= RIGHT or states_answer(said, [draft.answer])


def verdict(draft: Draft, whole: str, blind: str, alone: Sequence[str]) -> str:
    """Return what is wrong with a question by its answers: from its passages, from none, from each alone."""
    if not gives(whole, draft):
        return "its passages do not answer it"
    if gives(blind, draft):
        return "it needs no passage"
    if any(gives(said, draft) for said in alone):
        return "one of its passages is enough"
    return ""


def counted(reasons: Iterable[str]) -> str:
    """Return the reasons with their counts, the most frequent first.

    >>> counted(["b", "a", "b"])
    'b 2, a 1'
    """
    from collections import Counter

    return ", ".join(f"{reason} {count}" for reason, count in Counter(reasons).most_common())
