"""Section ``retriever`` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harr.params.fields import MaybePathOrName, Positive, Section


class RetrieverParams(Section):
    """The player that finds: a state in, K of N passages out. It learns, unless train.method lets another learn."""

    k: Positive = 3
    pool: Positive = 30
    """N: how many nearest passages compete."""
    search: Literal["dense", "sparse", "hybrid"] = "dense"
    """Which passages are nearest: by vector, by BM25 of the query's words, or by both, fused by rank. A retriever that
    learns draws its pool from this search, and then scores and chooses by vectors; one that does not learn returns
    the first K of the ranking as it is."""
    fusion: Literal["weighted", "rrf"] = "weighted"
    """Of hybrid: each side gives weight / rank (``weights``), or 1 / (60 + rank)."""
    weights: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] = (0.8, 0.2)
    """Of the dense and of the sparse ranking, for fusion: weighted."""
    late_interaction: MaybePathOrName = ""
    """A multi-vector model (ColBERT), folder or hub name, that orders the first ``pool`` passages of the search anew;
    where the language model learns (agent, leret). Empty: none."""
    temperature: float = Field(0.05, gt=0)
    """Scores are divided by it before a retriever that learns is sampled; where the language model learns (agent,
    leret) nothing reads it."""
    candidates: Literal["corpus", "question"] = "corpus"
    """Search the whole corpus, or only the passages given with the question."""
    positions: Literal["none", "absolute", "random", "relative"] = "none"
    """How a tower of actions is told where a sentence stands (train.method pqn; ``harr/rag/policies/q_values.py``)."""
    state: Literal["json", "sep"] = "json"
    """History as HARR writes it (labelled lines, JSON hops) or as Q-RAG does (joined by [SEP])."""
    max_tokens: int = Field(256, ge=16)
    """Length limit of the state text; the oldest hops are dropped first."""

    @model_validator(mode="after")
    def _k_fits_pool(self) -> "RetrieverParams":
        if self.k > self.pool:
            raise ValueError(
                f"k = {self.k} passages cannot be chosen from a pool of {self.pool}; lower k or raise pool"
            )
        if self.fusion == "rrf" and "weights" in self.model_fields_set:
            raise ValueError("weights are not read by fusion rrf; leave them out, or set fusion: weighted")
        return self
