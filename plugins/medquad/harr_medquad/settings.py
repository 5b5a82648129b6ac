"""Settings of the data set (``download.settings``)."""

from typing import Literal

from harr_documents.settings import ChunkParams
from pydantic import Field, model_validator

from harr.params.download import QuestionsParams
from harr.params.fields import MaybePathOrName, PathOrName, Section, Seed


class ScrapeParams(Section):
    """Fetching of MedQuAD's source pages: what robots.txt allows, one page at a time per host."""

    pages: PathOrName = "work/pages"
    """Folder for fetched pages; a killed run continues there."""
    user_agent: str = Field("harr", min_length=1, pattern=r"^[A-Za-z_-]+( .*|/.*)?$")
    """Name of our client: first a word that robots.txt may name, then a contact for hosts."""


class MedQuADParams(QuestionsParams, ChunkParams):
    """Medical questions, each with the page that answers it (arXiv 1901.08079)."""

    root: MaybePathOrName = ""
    """Folder with the official XML files; if empty, train and test name files."""
    train: tuple[PathOrName, ...] = ()
    """Files of training questions: JSON lines ``{id, question, answer, url}`` and, if known, ``focus, category,
    semantic_group, synonyms``."""
    test: tuple[PathOrName, ...] = ()
    """Files of test questions, in the format of the training files."""
    documents: Literal["page", "answer"] = "page"
    """What a document is: a page (all questions with its address share it), or a single answer."""
    test_share: float = Field(0.1, gt=0, lt=1)
    """Share of the documents of ``root`` whose questions are test questions."""
    scrape: ScrapeParams | None = None
    """Fetching of the pages, whose text replaces the answers; a page that cannot be fetched keeps its answers. With
    null nothing is fetched."""
    seed: Seed = 0
    """Seed of the split into training and test documents."""

    @model_validator(mode="after")
    def _has_one_source(self) -> "MedQuADParams":
        if bool(self.root) == bool(self.train or self.test) or bool(self.train) != bool(self.test):
            raise ValueError("give root (a folder of MedQuAD's XML files), or both train and test (JSON lines)")
        if self.scrape and self.documents != "page":
            raise ValueError("scrape fetches pages; set documents: page")
        return self
