"""The form of every data set before it is checked and stored."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from harr.types import Passage, Question


@dataclass(frozen=True)
class Source:
    """Streams of passages and questions; ``searchable`` says which passages go into the index (None: all).

    ``passages`` is read before the questions. ``validation``: the data set's own validation questions; None: those that
    ``download.validation_questions`` requests are drawn from ``train``. ``figures`` and ``left_out``, one line for
    every unreadable passage, are complete once ``passages`` has been read.
    """

    passages: Iterable[Passage]
    train: Iterable[Question]
    test: Iterable[Question]
    searchable: Callable[[Passage], bool] | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    validation: Iterable[Question] | None = None
