"""Settings of section ``index`` of params.yaml, if it names an index of this package."""

from typing import Annotated

from pydantic import Field

from harr.errors import ParamsError
from harr.params.faults import SomeSection, read_section
from harr.params.fields import Section, Uri
from harr.params.index import IndexParams

OWN = ("breadth", "kind")
"""Parameters of a collection that harr builds."""


class AdoptParams(Section):
    """A collection on a Milvus server that harr searches and never writes to."""

    collection: Annotated[str, Field(min_length=1)]
    """Name of the collection, or of an alias."""
    id_field: str = "id"
    """Name of the field with the passages' ids, which are those of the corpus."""
    vector_field: str = "vector"
    """Name of the field with their vectors, made by section ``encoder``, of length 1."""
    text_field: str = "text"
    """Name of the field with their texts, read where there is no corpus (``harr.Retriever``)."""
    title_field: str = ""
    """Name of the field with their titles, read likewise; if empty, they have none."""
    filter: str = ""
    """Expression of Milvus that a passage must meet to be found, such as ``tenant == "a"``; if empty, all are."""
    breadth: Annotated[int, Field(ge=0, le=32_768)] = 0
    """Number of candidates that a search keeps, or of cells that it reads, as ``index.breadth`` of harr's own."""


class BulkParams(Section):
    """Files that a server imports."""

    folder: Annotated[Uri, Field(pattern="^(s3://|file:///)")]
    """Place that the server reads: ``s3://bucket/folder`` of its own storage (keys from AWS_*), or a
    ``file:///folder`` that it sees, too."""


def read_adopted(params: IndexParams) -> AdoptParams:
    """Return the collection that section ``index`` names.

    Raises:
        ParamsError: it names none, or has what only a collection built by harr has.
    """
    section = _read(AdoptParams, params)
    if params.full_text:
        raise ParamsError("index.full_text: an adopted collection is searched by vectors alone; set it to false")
    if given := [name for name in OWN if getattr(params, name) != IndexParams.model_fields[name].default]:
        raise ParamsError(f"index.{given[0]} is for a collection that harr builds; leave it out")
    return section


def read_bulk(params: IndexParams) -> BulkParams:
    """Return the place for the files of section ``index``.

    Raises:
        ParamsError: it names none.
    """
    return _read(BulkParams, params)


def _read(section: type[SomeSection], params: IndexParams) -> SomeSection:
    if not params.uri:
        raise ParamsError(f"index.function: {params.function} is for a Milvus server; set index.uri")
    return read_section(section, params.settings, "index.settings")
