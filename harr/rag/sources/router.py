"""Several sources as one retriever: every search says by its tool which one is asked."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harr.compute import distributed
from harr.io.files import fingerprint, sha256
from harr.params.sources import CassetteParams, ExaParams, FunctionSourceParams, SourceParams
from harr.rag.sources.client import WebSource
from harr.rag.sources.providers import ask_of
from harr.types import Retrieval, Retriever, Search

TAPE_SECONDS = 60.0
PACE = {"key_variable", "concurrency", "deadline_seconds", "record", "num_results"}
"""What does not change the answer to a query; of how many passages it is, the memory knows beside."""


@dataclass
class Sources:
    """The sources by tool: ``own`` collections, and the ``web``, which is asked while those are searched.

    A search that a source of the web fails, or whose tool no source has, brings an error instead of passages. Where
    our own index is away, the run ends as it does without sources: its collections are not one source among many.
    """

    own: Mapping[str, Retriever]
    web: Mapping[str, WebSource]

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval per search, in order; one call a source, the sources of the web all at once."""
        asked: dict[str, list[int]] = {}
        for number, search in enumerate(searches):
            asked.setdefault(search.tool, []).append(number)
        known = ", ".join((*self.own, *self.web))
        found = [Retrieval((), error=f"there is no source {search.tool!r}, only {known}") for search in searches]
        batches = {tool: [searches[number] for number in numbers] for tool, numbers in asked.items()}
        with ThreadPoolExecutor(max(1, len(self.web)), thread_name_prefix="sources") as pool:
            # Of several processes only the main one asks the web; what our index finds, all of them hear.
            outside = [tool for tool in batches if tool in self.web and distributed.is_main()]
            waiting = {tool: pool.submit(self.web[tool].retrieve, batches[tool]) for tool in outside}
            came = {tool: self.own[tool].retrieve(batch) for tool, batch in batches.items() if tool in self.own}
            came |= distributed.only_main(lambda: {tool: future.result() for tool, future in waiting.items()})
        for tool, retrievals in came.items():
            for number, retrieval in zip(asked[tool], retrievals, strict=True):
                found[number] = retrieval
        return found

    def usage(self) -> Mapping[str, float]:
        """Return what was asked of the web: counts as :meth:`WebSource.usage` gives them, under ``<tool> <count>``."""
        return {f"{tool} {name}": count for tool, source in self.web.items() for name, count in source.usage().items()}


def web_source(tool: str, section: ExaParams | FunctionSourceParams | CassetteParams, searches: Path) -> WebSource:
    """Open a source as params.yaml describes it; what the web answers is remembered in the folder ``searches``.

    Raises:
        ParamsError: no key, no package, no such function, or no readable cassette.
    """
    ask = ask_of(tool, section)
    if isinstance(section, CassetteParams):
        return WebSource(tool, ask, k=section.num_results, deadline_seconds=TAPE_SECONDS)
    return WebSource(
        tool,
        ask,
        k=section.num_results,
        deadline_seconds=section.deadline_seconds,
        concurrency=section.concurrency,
        cache=searches / f"{fingerprint([tool, section.model_dump(exclude=PACE)])}.sqlite",
        tape=Path(section.record) if section.record else None,
    )


def settings(sources: Mapping[str, SourceParams]) -> list[object]:
    """Return what the answers of sources follow from: neither keys nor pace; of a cassette its bytes."""
    tapes = {
        tool: sha256(Path(section.path)) for tool, section in sources.items() if isinstance(section, CassetteParams)
    }
    return [{tool: section.model_dump(exclude=PACE - {"num_results"}) for tool, section in sources.items()}, tapes]
