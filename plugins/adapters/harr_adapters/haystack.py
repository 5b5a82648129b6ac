"""A trained retriever as a component of Haystack 2 and 3 (``haystack-ai``)."""

from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict

from harr.builders.trained import TrainedRetriever
from harr_adapters.asking import ask


@component
class HaystackRetriever:
    """A component with the inputs query, question, hops and top_k, and the output documents, best first.

    It opens the retriever when the pipeline warms up, so that the pipeline can be saved and loaded; ``close`` releases
    the index.
    """

    def __init__(self, folder: str, index: str = ".", top_k: int = 0) -> None:
        """Take arguments of ``harr.Retriever.load``; ``top_k``: number of documents, 0 for as many as in training."""
        self.folder, self.index, self.top_k = folder, index, top_k
        self._opened: TrainedRetriever | None = None

    def warm_up(self) -> None:
        """Open the retriever, once."""
        self._opened = self._opened or TrainedRetriever.load(self.folder, index=self.index)

    def close(self) -> None:
        """Close the index; the next run opens it again."""
        if self._opened:
            self._opened.close()
            self._opened = None

    def to_dict(self) -> dict[str, Any]:
        """Return the component as a dictionary for saving."""
        saved: dict[str, Any] = default_to_dict(self, folder=self.folder, index=self.index, top_k=self.top_k)
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "HaystackRetriever":
        """Return the component that was saved as ``data``."""
        made: HaystackRetriever = default_from_dict(cls, data)
        return made

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, question: str = "", hops: list[tuple[str, str]] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the documents for a query, given its question and the hops before it: (sub-query, answer) each."""
        self.warm_up()
        assert self._opened
        found = ask(self._opened, query, question, hops or (), self.top_k if top_k is None else top_k)
        documents = [
            Document(id=one.id, content=one.content, meta={"title": one.title, "source": one.source}, score=score)
            for one, score in found.scored
        ]
        return {"documents": documents}
