"""A trained retriever as LlamaIndex's (``llama-index-core``)."""

from dataclasses import dataclass

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from harr.builders.trained import TrainedRetriever
from harr_adapters.asking import Hops, ask


@dataclass
class HopQuery(QueryBundle):
    """A query with its history: ``HopQuery("Where was she born?", question=..., hops=[...])``."""

    question: str = ""
    hops: Hops = ()


class LlamaIndexRetriever(BaseRetriever):
    """A retriever whose ``retrieve(query)`` returns nodes, best first; a :class:`HopQuery` brings the history.

    Without a history the query is its own question.
    """

    def __init__(self, retriever: TrainedRetriever, k: int = 0) -> None:
        """Take an open retriever, which the caller closes; ``k``: number of nodes, 0 for as many as in training."""
        super().__init__()
        self._retriever, self._k = retriever, k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = query_bundle if isinstance(query_bundle, HopQuery) else HopQuery(query_bundle.query_str)
        found = ask(self._retriever, query.query_str, query.question, query.hops, self._k)
        return [
            NodeWithScore(
                node=TextNode(
                    id_=passage.id,
                    text=passage.content,
                    metadata={"title": passage.title, "source": passage.source},
                    excluded_embed_metadata_keys=["title", "source"],
                    excluded_llm_metadata_keys=["title", "source"],
                ),
                score=score,
            )
            for passage, score in found.scored
        ]
