"""Settings of the data sets (``download.settings``)."""

from typing import Literal

from harr.params.download import DrawnParams
from harr.params.fields import MaybePathOrName


class OpenParams(DrawnParams):
    """Questions over wiki18."""

    root: MaybePathOrName = ""
    """Folder with the hub's files as ``<repository>/<file>``; if empty, they are downloaded."""


class GivenParams(OpenParams):
    """Questions given with paragraphs."""

    passages: Literal["context", "wiki18"] = "context"
    """Corpus to search: the paragraphs given with the questions, or the 21,015,324 passages of wiki18."""


class HotpotParams(GivenParams):
    """HotpotQA."""

    train_level: tuple[Literal["easy", "medium", "hard"], ...] = ()
    """Levels of the training questions to learn from; the development split, our test split, is all hard."""
