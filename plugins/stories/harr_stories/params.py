"""Settings of data sets of stories (``download.settings``)."""

from pydantic import Field

from harr.params.download import QuestionsParams
from harr.params.fields import PathOrName, Positive, Seed


class HaystackParams(QuestionsParams):
    """The stories that are hidden between the sentences of a long text."""

    noise: PathOrName
    """Long text: a text file, a JSON lines file with ``text``, repeated (RULER's five sentences again and again), or a
    function ``package.module:name`` that returns texts, e.g. ``harr_encyclopaedia.dataset:noise``."""
    sentences: Positive = 100
    """Length of a document in sentences; longer stories are left out."""
    train_noise: int = Field(0, ge=0)
    """Maximum number of sentences of the noise in training documents, each of which is encoded again during training;
    0 means all."""
    train_questions: Positive = 800
    """Number of training stories, with a question each."""
    test_questions: Positive = 400
    """Number of test stories, with a question each."""
    seed: Seed = 0
    """Seed of the random numbers that stories are generated and placed with."""


class BabiLongParams(HaystackParams):
    """Stories of bAbI hidden between the sentences of a long text (BABILong, arXiv 2406.10149)."""

    task: int = Field(ge=1, le=5)
    """Number of the bAbI task."""
    train: tuple[PathOrName, ...] = ()
    """Official training files, of which at most train_questions stories are drawn by the seed; if empty, stories are
    generated."""
    test: tuple[PathOrName, ...] = ()
    """Official test files, of which at most test_questions stories are drawn by the seed; if empty, stories are
    generated."""
