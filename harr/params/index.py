"""Section ``index`` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harr.params.fields import Dotted, Fraction, MaybeAddress, Plain, Positive, Section, Variable

KindName = Literal["flat", "hnsw", "ivf_sq8", "diskann"]
READ_BY = {"links": ("hnsw",), "cells": ("ivf_sq8",), "breadth": ("hnsw", "ivf_sq8", "diskann")}
"""Parameters that not every kind of index has."""


class IndexParams(Section):
    """Where the vectors are searched."""

    uri: MaybeAddress = ""
    """Address of a Milvus server, e.g. http://127.0.0.1:19530; if empty, Milvus Lite searches in data/index."""
    token_variable: Variable = "MILVUS_TOKEN"
    """Name of the environment variable with the server's token."""
    full_text: bool = True
    """Whether the BM25 index is built, too; the arms ``bm25`` and ``hybrid`` and sparse or hybrid search need it."""
    stemmer: Literal["", "english"] = ""
    """Stemmer of the words that BM25 reads: ``english`` is that of Lucene and Anserini (`pip install 'harr[stemmer]'`); if
    empty, words stay as they are."""
    kind: KindName = "flat"
    """Kind of index of the vectors, as Milvus offers it: ``flat`` compares all and is exact; the others compare a part
    (docs/scale.md)."""
    links: Annotated[int, Field(ge=4, le=64)] = 32
    """Number of neighbours that a vector is linked to in ``hnsw`` (M); more find more, and take eight bytes each."""
    cells: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Number of cells of ``ivf_sq8`` (nlist); if 0, four times the root of the number of passages."""
    breadth: Annotated[int, Field(ge=0, le=32_768)] = 0
    """Number of candidates that a search keeps on its walk (``hnsw``: ef, ``diskann``: search_list), or of cells that
    it reads (``ivf_sq8``: nprobe); more find more, and take longer; if 0, 128, or a quarter of the cells."""
    min_recall: Fraction = 0.95
    """Share of the exact ``retriever.pool`` nearest passages that a kind other than flat must find for training
    questions; stage index stops below it."""
    function: Dotted | None = None
    """Index of another package, as ``package.module:name`` (docs/extend.md); null: harr builds one."""
    settings: Plain = Field({})
    """Settings that it is handed as they stand here."""
    retrain_after: Fraction = 0.1
    """Share of the passages that may be added, removed or changed before stages filter, train and arms run again; with
    0 every change trains again (docs/changing_corpus.md)."""
    batch_size: Positive = 1000
    """Number of rows that are sent to the index at once."""

    @model_validator(mode="after")
    def _parts_fit(self) -> "IndexParams":
        if self.settings and not self.function:
            raise ValueError("settings are those of a function; set index.function, or leave settings out")
        return self

    @model_validator(mode="after")
    def _a_parameter_is_of_the_kind(self) -> "IndexParams":
        for name in READ_BY:
            chosen = getattr(self, name) != type(self).model_fields[name].default  # one written out whole names all
            if chosen and self.kind not in READ_BY[name]:
                raise ValueError(
                    f"{name} = {getattr(self, name)} is not read by kind {self.kind}; leave it out, or set kind: "
                    + " or ".join(READ_BY[name])
                )
        return self
