"""Settings of the data set (``download.settings``)."""

from harr.params.download import ChunkParams, OwnQuestionsParams
from harr.params.fields import PathOrName


class DocumentsParams(OwnQuestionsParams, ChunkParams):
    """A folder of documents as they are, and files of questions about them."""

    folder: PathOrName
    """Folder whose files are read, with all folders in it; those whose names begin with a dot are not."""
    tokenizer: PathOrName
    """Model whose tokens documents are cut by; the same as encoder.model."""
