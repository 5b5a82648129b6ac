"""A folder of documents as a data set of harr: Markdown, HTML, text and PDF, cut into passages."""

from harr_documents.dataset import DATASET

__all__ = ["DATASET"]
