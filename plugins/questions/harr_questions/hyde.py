"""HyDE: a language model writes a passage that would answer the query; the search is for it (arXiv 2212.10496).

Published: the vectors of several written passages and of the query are averaged. Here one text is searched for, the
query and one passage, so that BM25 and hybrid search can read it too.
"""

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
from harr.types import Retrieval, Search
from tasks.paths import PLACES

PROMPT = """You write passages of an encyclopaedia.
Write one short passage, of two or three sentences, that answers the question. Guess where you do not know.
---
Question: $query
Passage:"""


class HydeParams(Section):
    """Settings of the retriever (``settings``)."""

    writer: Annotated[ServedParams | LocalParams, Field(discriminator="kind"), Untaught]
    """Language model that writes the passages, by its most likely tokens unless it has a temperature."""
    seed: int = 0
    """Random seed of a writer with a temperature."""


class Hyde:
    """A retriever that gives ``retriever.search`` the query and a passage that a language model wrote for it.

    Raises:
        ParamsError: the settings are wrong. ModelError: the model cannot be loaded.
    """

    def __init__(self, inputs: RetrieverInputs) -> None:
        params = read_section(HydeParams, inputs.settings, f"settings of {type(self).__name__}")
        self._writer = build_reader(params.writer, params.seed, PLACES, "the writer of HyDE")
        self._base = inputs.base

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval per search, in order; for equal queries the passage is written once."""
        assert self._writer
        queries = list(dict.fromkeys(line(search.query) for search in searches))
        replies = self._writer.complete([messages(PROMPT, query=query) for query in queries])
        written = {query: line(strip_thoughts(reply)) for query, reply in zip(queries, replies, strict=True)}
        longer = [f"{search.query} {written[line(search.query)]}".strip() for search in searches]
        return self._base.retrieve(
            [replace(search, query=query) for search, query in zip(searches, longer, strict=True)]
        )
