"""harr's core types: everything that pipelines, players and methods pass to one another.

A *pipeline* is a generator function that yields :class:`Search` and :class:`Generate` requests and
receives their answers; ``harr.rag.rollout.play`` drives many of them at once. A *player* answers
requests: a :class:`Retriever` finds passages, a :class:`Generator` writes text.
"""

from collections.abc import Callable, Generator as PyGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harr.characters import list_words


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrievable text. ``id`` is unique in its corpus; ``source`` names the part of the corpus or web it comes from.

    >>> Passage("p1", "Born in Ashford.", title="Ada Brown").content
    'Ada Brown: Born in Ashford.'
    """

    id: str
    text: str
    title: str = ""
    source: str = ""

    @property
    def content(self) -> str:
        """Return title and text as one string, which is embedded, indexed and shown to a reader."""
        return f"{self.title}: {self.text}" if self.title else self.text

    @property
    def document(self) -> str:
        """Return the passage's document."""
        return document_of(self.id)


CHUNK = "{document}_chunk_{number}"
"""The id of a document's chunk; numbers begin at 0."""


def chunk_of(passage_id: str) -> tuple[str, int]:
    """Return a passage's document and chunk number; a passage that is not a chunk is its own document.

    >>> chunk_of("lung_chunk_12"), chunk_of("p7")
    (('lung', 12), ('p7', 0))
    """
    document, _, number = passage_id.rpartition("_chunk_")
    return (document, int(number)) if document and number.isdecimal() else (passage_id, 0)


def document_of(passage_id: str) -> str:
    """Return a passage's document.

    >>> document_of("lung_chunk_12"), document_of("p7")
    ('lung', 'p7')
    """
    return chunk_of(passage_id)[0]


def list_neighbour_chunks(passage_id: str, most: int) -> list[str]:
    """Return the ids of up to ``most`` chunks before and after a chunk, nearest first; [] if it is not a chunk.

    >>> list_neighbour_chunks("lung_chunk_1", 2), list_neighbour_chunks("p7", 2)
    (['lung_chunk_2', 'lung_chunk_0', 'lung_chunk_3'], [])
    """
    document, number = chunk_of(passage_id)
    if document == passage_id:
        return []
    near = [number + step * side for step in range(1, most + 1) for side in (1, -1)]
    return [CHUNK.format(document=document, number=neighbour) for neighbour in near if neighbour >= 0]


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold. ``gold_ids`` are in hop order if the data set knows the order.

    If a gold document was cut into chunks, all of them are gold; metrics count it as one. ``grades`` says how
    relevant each of ``gold_ids`` is, from 1, if it was judged; empty: all are equal.

    ``candidate_ids`` lists the passages given with the question (a distractor set); empty means
    that the whole corpus is searched. ``kind`` and ``level`` (of difficulty) are in the data set's own words.
    ``setting`` names the question's data set and setting if there are several. ``notes`` are plain values
    from a data set for a method of the same package; training questions for such a method need no gold. ``history``
    is what was asked and answered earlier in a conversation.
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    gold_ids: tuple[str, ...] = ()
    candidate_ids: tuple[str, ...] = ()
    kind: str = ""
    level: str = ""
    setting: str = ""
    grades: tuple[int, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    history: "tuple[Hop, ...]" = ()

    @property
    def gold_grades(self) -> dict[str, int]:
        """Return the grade of every gold document, that of its best chunk; 1 if none is given.

        >>> Question("q", "Who?", gold_ids=("d_chunk_0", "d_chunk_1", "p"), grades=(1, 2, 1)).gold_grades
        {'d': 2, 'p': 1}
        """
        best: dict[str, int] = {}
        for name, grade in zip(map(document_of, self.gold_ids), self.grades or repeat(1), strict=False):
            best[name] = max(grade, best.get(name, 0))
        return best

    @property
    def gold_documents(self) -> tuple[str, ...]:
        """Return the documents of the gold passages, each once; ``gold_ids`` if no document was cut into chunks.

        >>> Question("q", "Who?", gold_ids=("d_chunk_0", "d_chunk_1", "p")).gold_documents
        ('d', 'p')
        """
        return tuple(dict.fromkeys(map(document_of, self.gold_ids)))

    @property
    def identity(self) -> tuple[str, ...]:
        """Return what identifies the question: its words, those asked before it, and its gold if it has its own story.

        Case, punctuation and Unicode form (NFC, NFD) do not count. "Where is Mary?" is another question in
        every story, as is "Where was she born?" after other turns. Passages of a question's own story have its id and
        a hyphen before their number.

        >>> Question("q1", "Who is  it?", gold_ids=("p7",)).identity
        ('who is it',)
        >>> Question("q2", "Who?", gold_ids=("q2-0",)).identity
        ('who', 'q2-0')
        >>> Question("q3", "And where?", gold_ids=("p7",), history=(Hop("Who is it?", "Ada"),)).identity
        ('and where', 'who is it')
        """
        is_own_story = all(pid.startswith(f"{self.id}-") for pid in self.gold_ids)
        texts = self.text, *(hop.query for hop in self.history)
        return (*(" ".join(list_words(text)) or text for text in texts), *(self.gold_ids if is_own_story else ()))


@dataclass(frozen=True, slots=True)
class Hop:
    """One finished hop as the next state shows it: the query and the answer.

    ``status`` is FOUND, NOT_FOUND or AMBIGUOUS if the pipeline gives one, otherwise empty.
    """

    query: str
    answer: str
    status: str = ""


@dataclass(frozen=True, slots=True)
class Search:
    """A pipeline's request to the retriever for ``k`` passages (0: the retriever's own k).

    ``hops`` is the history before this query; passages in ``exclude_ids`` are never returned. ``tool`` names the
    source to ask if there are several. ``resolved`` is the query with its pronoun replaced by the name, if the
    query's writer gives it; only oracle arms read it. ``thought`` is what the agent wrote right before
    this search, on one line and without tags; empty if it wrote nothing.
    """

    question: Question
    query: str
    hops: tuple[Hop, ...] = ()
    exclude_ids: frozenset[str] = frozenset()
    k: int = 0
    tool: str = ""
    resolved: str = ""
    thought: str = ""


@dataclass(frozen=True, slots=True)
class Generate:
    """A pipeline's request to the generator for one completion of chat ``messages`` or of the raw text ``prompt``.

    Exactly one of the two is given. The completion ends before the first of the ``stop`` strings.
    ``past`` has the episode's earlier turns; :func:`harr.rag.rollout.play` adds it.
    """

    messages: tuple[Mapping[str, str], ...] = ()
    prompt: str = ""
    stop: tuple[str, ...] = ()
    past: "tuple[Turn, ...]" = ()

    def cut(self, text: str) -> str:
        """Return a completion up to the first of the stop strings.

        >>> Generate(prompt="q", stop=("</a>",)).cut("Bath </a> and more")
        'Bath '
        """
        return text[: min((text.find(word) for word in self.stop if word in text), default=len(text))]

    def stopped(self, completion: str) -> bool:
        """Return whether a stop string ended a completion; one without an ``ending`` counts as stopped.

        >>> request = Generate(prompt="q", stop=("</a>",))
        >>> request.stopped("Bath "), request.stopped(TruncatedCompletion("Bath "))
        (True, False)
        """
        ending = getattr(completion, "ending", None)
        return ending is None or any(word in f"{completion}{ending}" for word in self.stop)


class TruncatedCompletion(str):
    """A completion that no stop string ended: a token limit cut it off, or the model ended its text."""

    ending = ""


class ContextFull(TruncatedCompletion):
    """A completion for which the prompt left less room than requested; ``reason`` says where, and how much.

    It is never cached, because a server with a longer context would have written more.
    """

    reason = ""

    @classmethod
    def of(cls, text: str, reason: str) -> "ContextFull":
        """Return a completion with the reason for its shortness.

        >>> reply = PromptTooLong.of("", "at most 4096 tokens")
        >>> reply == "" and isinstance(reply, TruncatedCompletion), reply.reason
        (True, 'at most 4096 tokens')
        """
        reply = cls(text)
        reply.reason = reason
        return reply


class PromptTooLong(ContextFull):
    """The empty completion of a prompt that exceeds the model's context; ``reason`` is in the server's words."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One completion of an episode together with its request."""

    request: Generate
    completion: str


@dataclass(frozen=True, slots=True)
class Shortened:
    """What a state lost to its length limit: how many hops were ``dropped``.

    ``thought_cut``: the beginning of the thought was cut. ``question``: the original question was cut. ``query``: the
    current query alone exceeds the limit, so its end is not read.
    """

    dropped: int = 0
    thought_cut: bool = False
    question: bool = False
    query: bool = False


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The retriever's answer: ``passages`` in rank (or sampled) order.

    A sampling retriever also stores its action: ``state`` (the text it encoded), ``pool`` (row
    numbers of all candidates, the chosen ones first, in order) and ``logprob`` (nats) of the choice; the first ``kept``
    passages were chosen greedily, not sampled. A value-based policy stores ``value``, the Q of its first passage. A
    failed source returns no passages but an ``error``, the reason in one line, which is shown to the model.
    ``scores``: one per passage, higher is better, if the retriever has its own scores. ``shortened``: what the
    state lacks of question, history and thought. ``features``: those of each candidate in the pool, (N, F), if
    the policy reads them. ``reached``: the gold passages among the candidates.
    """

    passages: tuple[Passage, ...]
    state: str = ""
    pool: tuple[int, ...] = ()
    logprob: float | None = None
    kept: int = 0
    value: float | None = None
    error: str = ""
    scores: tuple[float, ...] = ()
    shortened: Shortened = Shortened()
    features: NDArray[np.float32] | None = field(default=None, compare=False)
    reached: frozenset[str] | None = field(default=None, compare=False)

    @property
    def scored(self) -> list[tuple[Passage, float | None]]:
        """Return each passage with its score, None if the retriever has no scores."""
        return list(zip(self.passages, self.scores or [None] * len(self.passages), strict=True))


@dataclass(frozen=True, slots=True)
class Step:
    """One search of an episode together with its retrieval."""

    search: Search
    retrieval: Retrieval


@dataclass(frozen=True, slots=True)
class Outcome:
    """A pipeline's result: its final answer, hops and counts.

    ``malformed``: unusable replies. ``escaped``: control tags in passages, escaped before a model reads them.
    ``turns``: how often the model wrote, or should have, if the pipeline checks the form of turns; ``faults``: the
    reason for every ill-formed turn. ``graph``: why the model's search graph is invalid; (): it is
    valid; None: the pipeline has no graphs. ``tool_errors``: number of calls that a tool refused and of searches that
    failed at a source.
    """

    answer: str | None = None
    hops: tuple[Hop, ...] = ()
    malformed: int = 0
    escaped: int = 0
    turns: int = 0
    faults: tuple[str, ...] = ()
    graph: tuple[str, ...] | None = None
    tool_errors: int = 0


@dataclass(frozen=True, slots=True)
class Episode:
    """One question played to its end: its searches, the model's turns, and its outcome.

    ``answer`` is None if the pipeline gave none.
    """

    question: Question
    steps: tuple[Step, ...] = ()
    outcome: Outcome = field(default_factory=Outcome)
    turns: tuple[Turn, ...] = ()

    @property
    def answer(self) -> str | None:
        """Return the pipeline's final answer."""
        return self.outcome.answer

    @property
    def retrieved(self) -> tuple[Passage, ...]:
        """Return all passages of the episode in order of first appearance."""
        return tuple({p.id: p for step in self.steps for p in step.retrieval.passages}.values())

    @property
    def documents(self) -> tuple[str, ...]:
        """Return the documents of all passages of the episode in order of first appearance."""
        return tuple(dict.fromkeys(p.document for step in self.steps for p in step.retrieval.passages))


Request = Search | Generate | tuple[Search, ...]
"""What a pipeline yields. Simultaneous searches are answered by a list of retrievals, in order."""
Pipeline = Callable[[Question], PyGenerator[Request, "Retrieval | str | list[Retrieval]", Outcome]]
Value = float | list[float] | None
"""A reward for the whole episode, or one per step; None means that it does not apply."""
Term = Callable[[Episode], float | None]
"""A reward or metric for a whole episode."""
Log = Callable[[int, Mapping[str, float]], None]
"""A function of (step, values) through which a long loop reports its progress."""


class Retriever(Protocol):
    """A player that finds passages; one call answers all pending searches."""

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval per search, in order."""
        ...


class Generator(Protocol):
    """A player that writes text; one call answers all pending requests."""

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order."""
        ...

    def usage(self) -> Mapping[str, float]:
        """Return the usage so far: requests, prompt_tokens, completion_tokens and the like."""
        ...
