"""Section ``retriever`` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harr.params.fields import Dotted, MaybePathOrName, Plain, Positive, Section


class RetrieverParams(Section):
    """The player that finds K of N passages for a state. It learns, unless train.method trains another player."""

    encoder: MaybePathOrName = ""
    """Folder of the encoder that reads states, made by `harr bridge` or by stage merge for the vectors of
    encoder.model; if empty, encoder.model reads them."""
    k: Positive = 3
    """Number of passages that a search returns (K)."""
    pool: Positive = 30
    """Number of nearest passages that compete for the K places (N)."""
    link_features: Dotted | None = None
    """Function of another package that finds further candidates, such as passages linked to the query and to earlier
    picks (``harr_links.tables:open_links``). They compete with the nearest, and a small learnt term of each candidate's
    features is added to its vector score (``harr/rag/policies/link_features.py``)."""
    learns: Literal["all", "query_adapter", "link_features"] = "all"
    """Weights that train: those of the encoder and of the term; or, in a fraction of the time, since no state is
    encoded twice, those of a linear map of its vector and of the term, or of the term alone."""
    search: Literal["dense", "sparse", "hybrid"] = "dense"
    """Ranking that determines the nearest passages: by vector, by BM25 of the query's words, or by both, fused by rank.
    A retriever that learns draws its pool from this ranking, then scores and chooses by vectors; one that does not
    learn returns the first K."""
    fusion: Literal["weighted", "rrf"] = "weighted"
    """Score that each ranking gives in hybrid search: weight / rank (``weights``), or 1 / (60 + rank)."""
    weights: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] = (0.8, 0.2)
    """Weights of the dense and of the sparse ranking in weighted fusion."""
    function: Dotted | None = None
    """Class or function of another package that makes the retriever if the language model learns, as
    ``package.module:name``; with null, ``search`` decides."""
    settings: Plain = Field({})
    """Settings passed to it unchanged."""
    temperature: float = Field(0.05, gt=0)
    """Divisor of the scores before a retriever that learns is sampled; not read if the language model learns."""
    candidates: Literal["corpus", "question"] = "corpus"
    """Passages that are searched: the whole corpus, or only those given with the question."""
    positions: Literal["none", "absolute", "random", "relative", "relative_whole"] = "none"
    """Kind of sentence positions that the action tower gets (with pqn; ``harr/rag/policies/q_values.py``)."""
    value_scale: float = Field(2.0, gt=0)
    """Factor of the inner product of state and passage in their value (with pqn); .01 for vectors that are a tenth of
    the mean of their tokens, as published."""
    pick_order: Literal["document", "picked"] = "document"
    """Order in which a state shows its picks (with pqn): as in the document, or as they were picked."""
    state: Literal["json", "lines", "sep", "thought"] = "json"
    """Format of the state: HARR's (labelled lines, JSON hops), the same in half the tokens (lines: one per hop, no
    status), Q-RAG's (joined by [SEP]), or with what the agent wrote before the query instead of the history
    (thought)."""
    max_tokens: int = Field(256, ge=16)
    """Maximum length of the state text in tokens, prompt included. If it is longer, the first hops are dropped, or the
    beginning of the thought is cut, then the middle of the question; the current query is cut only if it alone is too
    long."""
    pick_tokens: int = Field(0, ge=0)
    """Maximum length in tokens of each pick in a state joined by [SEP], whose rest is cut; 0 means that picks are shown
    whole, or dropped if the state is too long."""

    @model_validator(mode="after")
    def _a_pick_fits_a_state(self) -> "RetrieverParams":
        if self.pick_tokens >= self.max_tokens:
            raise ValueError(f"a pick of pick_tokens {self.pick_tokens} fills a state of max_tokens {self.max_tokens}")
        return self

    @model_validator(mode="after")
    def _what_learns_is_there(self) -> "RetrieverParams":
        if self.learns == "link_features" and not self.link_features:
            raise ValueError(
                "learns: link_features trains the term of retriever.link_features, which is not set; set that, too"
            )
        return self

    @model_validator(mode="after")
    def _k_fits_pool(self) -> "RetrieverParams":
        if self.k > self.pool:
            raise ValueError(
                f"k = {self.k} passages cannot be chosen from a pool of {self.pool}; lower k or raise pool"
            )
        return self
