"""A trained retriever as LangChain's (``langchain-core``)."""

import asyncio
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from harr_adapters.asking import Hops, ask


class LangChainRetriever(BaseRetriever):
    """A ``Runnable`` whose ``invoke(query, question=..., hops=[...])`` returns documents, best first.

    ``question``, ``hops`` and ``k`` are given per call, or once by ``bind``; without them the query is its own
    question.
    """

    retriever: Any
    """A ``harr.Retriever``; the caller closes it."""
    k: int = 0
    """Number of documents; 0: as many as in training."""

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        question: str = "",
        hops: Hops = (),
        k: int | None = None,
    ) -> list[Document]:
        found = ask(self.retriever, query, question, hops, self.k if k is None else k)
        return [
            Document(
                id=passage.id,
                page_content=passage.content,
                metadata={"id": passage.id, "title": passage.title, "source": passage.source, "score": score},
            )
            for passage, score in found.scored
        ]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        found = self._get_relevant_documents
        return await asyncio.to_thread(found, query, run_manager=run_manager.get_sync(), **options)
