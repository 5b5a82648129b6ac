"""Several sources as one retriever: a search goes to the source that its tool names, without a tool to all."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from harr.compute import distributed
from harr.io.files import fingerprint
from harr.params.servers import ServerParams
from harr.params.sources import FunctionSourceParams, SourceParams
from harr.rag.sources.client import WebSource
from harr.rag.sources.providers import EXA, OutsideParams, open_provider
from harr.types import Passage, Retrieval, Retriever, Search

SERVER_PACE = dict.fromkeys(ServerParams.model_fields.keys() - {"urls"}, True)
PACE: dict[str, Any] = {"concurrency": True, "deadline_seconds": True, "server": SERVER_PACE}
"""Parameters that do not change the answer to a query."""
SEARCHED = PACE | {"num_results": True}
"""Parameters left out of the name of an answer cache, whose keys include the number of passages."""


@dataclass
class Sources:
    """The sources by tool: ``own`` collections, and the ``web``, which is searched at the same time.

    For a search without a tool the results of all sources are merged, ``k`` passages in all (:func:`merge_retrievals`).
    A failed web source, or an unknown tool, gives an error instead of passages. If our own index is unavailable, the
    run ends as it does without sources.
    """

    own: Mapping[str, Retriever]
    web: Mapping[str, WebSource]
    k: int = 3

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval per search, in order, with one call per source, all web sources at once."""
        tools = (*self.own, *self.web)
        numbers_of: dict[str, list[int]] = {tool: [] for tool in tools}
        for number, search in enumerate(searches):
            for tool in (search.tool,) if search.tool else tools:
                numbers_of.get(tool, []).append(number)
        batches = {tool: [searches[number] for number in numbers] for tool, numbers in numbers_of.items() if numbers}
        with ThreadPoolExecutor(max(1, len(self.web)), thread_name_prefix="sources") as pool:
            # Only the main process searches the web and broadcasts the results; our index does so itself.
            outside = [tool for tool in batches if tool in self.web and distributed.is_main()]
            waiting = {tool: pool.submit(self.web[tool].retrieve, batches[tool]) for tool in outside}
            hits = {tool: self.own[tool].retrieve(batch) for tool, batch in batches.items() if tool in self.own}
            hits |= distributed.main_process_only(lambda: {tool: future.result() for tool, future in waiting.items()})
        by_search: list[dict[str, Retrieval]] = [{} for _ in searches]
        for tool in tools:
            for number, retrieval in zip(numbers_of[tool], hits.get(tool, ()), strict=True):
                by_search[number][tool] = retrieval
        unknown = f"only {', '.join(tools)}"
        return [
            merge_retrievals(parts, search.k or self.k)
            if not search.tool
            else parts.get(search.tool, Retrieval((), error=f"there is no source {search.tool!r}, {unknown}"))
            for search, parts in zip(searches, by_search, strict=True)
        ]

    def usage(self) -> Mapping[str, float]:
        """Return the usage of web sources: counts of :meth:`WebSource.usage` under ``<tool> <count>``."""
        return {f"{tool} {name}": count for tool, source in self.web.items() for name, count in source.usage().items()}


def merge_retrievals(by_tool: Mapping[str, Retrieval], k: int) -> Retrieval:
    """Merge the retrievals of several sources for one search into one of at most ``k`` passages.

    The sources take turns in the order of params.yaml: the first passage of each, then the second of each, and so on.
    A passage with the same id and text in two sources counts once. The result is an error if all failed.

    >>> a, b, c = (Retrieval((Passage(f"{name}1", name), Passage(f"{name}2", name))) for name in "abc")
    >>> [passage.id for passage in merge_retrievals({"A": a, "B": b, "C": c}, 4).passages]
    ['a1', 'b1', 'c1', 'a2']
    >>> merge_retrievals({"A": Retrieval((), error="down"), "B": Retrieval((), error="no key")}, 4).error
    'A: down; B: no key'
    """
    errors = {tool: retrieval.error for tool, retrieval in by_tool.items() if retrieval.error}
    if len(errors) == len(by_tool):
        return Retrieval((), error="; ".join(f"{tool}: {error}" for tool, error in errors.items()))
    ranks = zip_longest(*(retrieval.passages for retrieval in by_tool.values()))
    distinct: dict[tuple[str, str], Passage] = {}
    for passage in (passage for rank in ranks for passage in rank if passage):
        distinct.setdefault((passage.id, passage.text), passage)
    return Retrieval(tuple(distinct.values())[:k])


def open_sources(sources: Mapping[str, SourceParams], searches: Path) -> dict[str, WebSource]:
    """Open every source of params.yaml that is not our own index, without sending a request.

    Web answers are cached in the folder ``searches``, for all stages.

    Raises:
        ParamsError: no key, no package, or no such function.
    """
    return {tool: _open(tool, section, searches) for tool, section in sources.items() if section.kind != "milvus"}


def _open(tool: str, section: OutsideParams, searches: Path) -> WebSource:
    provider = open_provider(tool, section)
    pace = section if isinstance(section, FunctionSourceParams) else section.server or EXA
    return WebSource(
        tool,
        provider,
        k=section.num_results,
        deadline_seconds=pace.deadline_seconds,
        concurrency=pace.concurrency,
        cache=searches / f"{fingerprint([tool, section.model_dump(exclude=SEARCHED)])}.sqlite",
    )


def source_facts(sources: Mapping[str, SourceParams]) -> dict[str, object]:
    """Return the facts that determine the answers of sources, without keys and pace."""
    return {tool: section.model_dump(exclude=PACE) for tool, section in sources.items()}
