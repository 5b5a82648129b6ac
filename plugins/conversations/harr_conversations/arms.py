"""Untrained arms for conversations: all turns as one query, and the last turn as a language model rewrites it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from harr.builders.generators import build_reader
from harr.builders.retrievers import RetrieverInputs
from harr.params.faults import read_section
from harr.params.fields import Section
from harr.params.generator import LocalParams, ServedParams, Untaught
from harr.rag.pipelines.replies import line, messages, strip_thoughts
from harr.rag.retrieval.rewritten import Rewritten, rewrite_query
from harr.types import Generate, Retrieval, Search
from tasks.paths import PLACES

PROMPT = """You rewrite the last question of a conversation, so that it can be understood without the conversation.
Write names in place of words such as "she" or "the other one". Write the question alone, and do not answer it.
---
Conversation:
$said
Last question: $query
Rewritten question:"""


def all_turns(inputs: RetrieverInputs) -> Rewritten:
    """Return a retriever that searches for the words of all turns by ``retriever.search``.

    The last turn comes first and the first one last, where an encoder cuts a long text.
    """
    return Rewritten(inputs.base, rewrite_query(join_turns))


def join_turns(search: Search) -> str:
    """Return the words of all turns, the last one first.

    >>> from harr.types import Hop, Question
    >>> said = Hop("Who founded Acme?", "Ada Brown"), Hop("When?", "")
    >>> join_turns(Search(Question("q", "Where?"), "Where?", said))
    'Where? When? Who founded Acme? Ada Brown'
    """
    said = (f"{hop.query} {hop.answer}".strip() for hop in reversed(search.hops))
    return " ".join([search.query, *said])


class RewriteParams(Section):
    """Settings of the arm (``settings``)."""

    writer: Annotated[ServedParams | LocalParams, Field(discriminator="kind"), Untaught]
    """Language model that rewrites, by its most likely tokens unless it has a temperature."""
    seed: int = 0
    """Random seed of a writer with a temperature."""


class Rewrite:
    """A retriever that gives ``retriever.search`` the last turn as a language model rewrote it.

    The rewritten turns are cached with the other completions. A first turn is searched for as it is.

    Raises:
        ParamsError: the settings are wrong. ModelError: the model cannot be loaded.
    """

    def __init__(self, inputs: RetrieverInputs) -> None:
        params = read_section(RewriteParams, inputs.settings, "settings of Rewrite")
        self._writer = build_reader(params.writer, params.seed, PLACES, "the writer of Rewrite")
        self._base = inputs.base

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval per search, in order; an empty reply leaves the turn as it is."""
        assert self._writer
        later = [number for number, search in enumerate(searches) if search.hops]
        replies = self._writer.complete([_ask(searches[number]) for number in later])
        written = {number: line(strip_thoughts(reply)) for number, reply in zip(later, replies, strict=True)}
        return self._base.retrieve(
            [replace(search, query=written.get(n) or search.query, hops=()) for n, search in enumerate(searches)]
        )


def _ask(search: Search) -> Generate:
    said = "\n".join(f"User: {line(hop.query)}\nAssistant: {line(hop.answer)}" for hop in search.hops)
    return messages(PROMPT, said=said, query=line(search.query))
