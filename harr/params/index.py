"""Section ``index`` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harr.params.fields import Fraction, MaybeAddress, Positive, Section, Uri, Variable

KindName = Literal["flat", "hnsw", "ivf_sq8", "diskann"]
READ_BY = {"links": ("hnsw",), "cells": ("ivf_sq8",), "breadth": ("hnsw", "ivf_sq8", "diskann")}
"""Parameters that not every kind of index has."""


class AdoptParams(Section):
    """A collection on a Milvus server that harr searches and never writes to."""

    collection: Annotated[str, Field(min_length=1)]
    """Name of the collection, or of an alias."""
    id_field: str = "id"
    """Name of the field with the passages' ids, which are those of the corpus."""
    vector_field: str = "vector"
    """Name of the field with their vectors, made by section ``encoder``, of length 1."""
    text_field: str = "text"
    """Name of the field with their texts, read where no corpus lies beside (``harr.Retriever``)."""
    title_field: str = ""
    """Name of the field with their titles, read likewise; if empty, they have none."""
    filter: str = ""
    """Expression of Milvus that a passage must meet to be found, such as ``tenant == "a"``; if empty, all are."""


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
    alias: Annotated[str, Field(pattern=r"^([A-Za-z_]\w{0,99})?$")] = ""
    """Alias of the collection on a Milvus server, which applications may search by; it always names the corpus of
    today, whose collection is changed where it lies; if empty, each corpus is a collection of its own."""
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
    adopt: AdoptParams | None = None
    """A collection that you already have, searched in place of one that harr builds; null: harr builds one."""
    retrain_after: Fraction = 0.1
    """Share of the passages that may be added, removed or changed before stages filter, train and arms run again; with
    0 every change trains again (docs/changing_corpus.md)."""
    batch_size: Positive = 1000
    """Number of rows that are sent to the index at once."""
    bulk: Uri = ""
    """Place that a server imports Parquet files from: ``s3://bucket/folder`` of its own storage (keys from AWS_*), or a
    ``file:///folder`` that it sees, too; if empty, rows are sent to it."""

    @model_validator(mode="after")
    def _bulk_and_alias_are_for_servers(self) -> "IndexParams":
        if self.bulk and not self.uri:
            raise ValueError("bulk is for a Milvus server; set index.uri, or leave bulk out")
        if self.alias and not self.uri:
            raise ValueError("alias is for a Milvus server; set index.uri, or leave alias out")
        if self.bulk and not self.bulk.startswith(("s3://", "file:///")):
            raise ValueError(f"bulk = {self.bulk} should begin with s3:// or file:///")
        return self

    @model_validator(mode="after")
    def _an_adopted_collection_is_as_it_is(self) -> "IndexParams":
        if self.adopt is None:
            return self
        if not self.uri:
            raise ValueError("adopt is for a Milvus server; set index.uri, or leave adopt out")
        if self.full_text:
            raise ValueError("an adopted collection is searched by vectors alone; set full_text: false")
        if given := [name for name in ("alias", "bulk", "cells", "kind", "links") if self._chosen(name)]:
            raise ValueError(f"{given[0]} is for a collection that harr builds; leave it out, or leave adopt out")
        return self

    @model_validator(mode="after")
    def _a_parameter_is_of_the_kind(self) -> "IndexParams":
        for name in READ_BY if self.adopt is None else ():
            if self._chosen(name) and self.kind not in READ_BY[name]:
                raise ValueError(
                    f"{name} = {getattr(self, name)} is not read by kind {self.kind}; leave it out, or set kind: "
                    + " or ".join(READ_BY[name])
                )
        return self

    def _chosen(self, name: str) -> bool:
        """Return whether a parameter differs from its default; a section that was written out whole names them all."""
        return bool(getattr(self, name) != type(self).model_fields[name].default)
