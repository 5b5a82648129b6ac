"""Section ``index`` of params.yaml."""

from pydantic import model_validator

from harr.params.fields import MaybeAddress, Positive, Section, Uri


class IndexParams(Section):
    """Where the vectors are searched."""

    uri: MaybeAddress = ""
    """Address of a Milvus server, e.g. http://127.0.0.1:19530; if empty, Milvus Lite searches in data/index."""
    token_variable: str = "MILVUS_TOKEN"
    """Name of the environment variable with the server's token."""
    full_text: bool = True
    """Whether the BM25 index is built, too; the arms ``bm25`` and ``hybrid`` and sparse or hybrid search need it."""
    batch_size: Positive = 1000
    """Number of rows that are sent to the index at once."""
    bulk: Uri = ""
    """Place that a server imports Parquet files from: ``s3://bucket/folder`` of its own storage (keys from AWS_*), or a
    ``file:///folder`` that it sees, too; if empty, rows are sent to it."""

    @model_validator(mode="after")
    def _bulk_is_for_servers(self) -> "IndexParams":
        if self.bulk and not self.uri:
            raise ValueError("bulk is for a Milvus server; set index.uri, or leave bulk out")
        if self.bulk and not self.bulk.startswith(("s3://", "file:///")):
            raise ValueError(f"bulk = {self.bulk} should begin with s3:// or file:///")
        return self
