"""What every data set is, before it is checked and stored."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from harr.types import Passage, Question


@dataclass(frozen=True)
class Source:
    """Passages and questions as streams; ``searchable`` says which passages go into the index (None: all).

    ``passages`` is read before the questions. ``validation``: questions of its own to validate with; None: those that
    ``download.validation_questions`` asks for are drawn from ``train``. ``figures`` and ``left_out``, a line for every
    passage that could not be read, are complete when ``passages`` was read.
    """

    passages: Iterable[Passage]
    train: Iterable[Question]
    test: Iterable[Question]
    searchable: Callable[[Passage], bool] | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    validation: Iterable[Question] | None = None
