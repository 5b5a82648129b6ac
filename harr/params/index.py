"""Section ``index`` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field

from harr.params.fields import Dotted, Fraction, MaybeAddress, Plain, Positive, Section, Variable

KindName = Literal["flat", "hnsw", "ivf_sq8"]


class IndexParams(Section):
    """Where the vectors are searched."""

    uri: MaybeAddress = ""
    """Address of a Milvus server, e.g. http://127.0.0.1:19530; if empty, Milvus Lite searches in data/index."""
    token_variable: Variable = "MILVUS_TOKEN"
    """Name of the environment variable with the server's token."""
    full_text: bool = True
    """Whether the BM25 index is also built; the arms ``bm25`` and ``hybrid`` and sparse or hybrid search need it."""
    stemmer: Literal["", "english"] = ""
    """Stemmer of the words that BM25 reads: ``english`` is that of Lucene and Anserini (`pip install 'harr[stemmer]'`);
    if empty, words are not stemmed."""
    kind: KindName = "flat"
    """Kind of Milvus's vector index: ``flat`` compares all vectors and is exact; the others compare a part
    (docs/scale.md)."""
    breadth: Annotated[int, Field(ge=0, le=32_768)] = 0
    """Number of candidates that a search keeps on its walk (``hnsw``: ef), or of cells that it reads (``ivf_sq8``:
    nprobe); higher numbers find more and take longer; 0 means 128, or a quarter of the cells."""
    min_recall: Fraction = 0.95
    """Share of the exact ``retriever.pool`` nearest passages that a kind other than flat must find for training
    questions; stage index stops below it."""
    function: Dotted | None = None
    """Index of another package, as ``package.module:name`` (docs/extend.md); with null, harr builds one."""
    settings: Plain = Field({})
    """Settings passed to it unchanged."""
    retrain_after: Fraction = 0.1
    """Share of the passages that may be added, removed or changed before stages filter, train and arms run again; with
    0 every change trains again (docs/changing_corpus.md)."""
    batch_size: Positive = 1000
    """Number of rows sent to the index at once."""
