"""Disjoint training, validation and test questions."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from reprlib import repr as short
from typing import TypeVar

from harr.corpus.sample import draw_questions
from harr.datasets.question_checks import find_near_duplicates
from harr.errors import CorpusError
from harr.params.download import DrawnParams
from harr.types import Question

T = TypeVar("T")


@dataclass(frozen=True)
class Splits:
    """The questions of every split; ``figures`` counts them, and those left out because another split has them."""

    train: list[Question]
    validation: list[Question]
    test: list[Question]
    figures: dict[str, float]

    def of(self, split: str) -> tuple[list[Question], int]:
        """Return a split's questions, and how many were left out of it."""
        lost = sum(value for name, value in self.figures.items() if name.startswith(f"{split}_questions_dropped"))
        return getattr(self, split), int(lost)


def divide(
    train: Sequence[Question], own: Sequence[Question] | None, test: Sequence[Question], count: int, near: str = ""
) -> Splits:
    """Return splits that share no question (:attr:`Question.identity`); test questions do not change.

    ``own`` are the data set's own validation questions, of which ``count`` are drawn (0: all). None: it has none, and
    ``count`` are drawn from ``train``. ``near`` says what to do with training questions that are nearly test questions
    (harr/datasets/question_checks.py): keep, drop or refuse; with "" they are not searched for.

    Raises:
        CorpusError: drawing ``count`` leaves no training question, or one nearly equals a test question.
    """
    tested = _identities(test)
    candidates = [question for question in train if question.identity not in tested]
    figures = {"train_questions_dropped_because_in_test": float(len(train) - len(candidates))}
    if near:
        alike = find_near_duplicates(candidates, test)
        if alike and near == "refuse":
            ours, theirs = next(iter(alike.items()))
            raise CorpusError(
                f"download: {len(alike)} training questions are nearly test questions (first: {short(ours)} is "
                f"{short(theirs)}); remove them, or set download.near_duplicates to drop or keep"
            )
        candidates = [question for question in candidates if near != "drop" or question.id not in alike]
        dropped = "_dropped_because_near_test" if near == "drop" else "_near_test"
        figures[f"train_questions{dropped}"] = float(len(alike))
    if own is None:
        candidates, validation = hold_out(candidates, count)
    else:
        drawn = draw_questions(own, count, seed=0)
        validation = [question for question in drawn if question.identity not in tested]
        figures["validation_questions_dropped_because_in_test"] = float(len(drawn) - len(validation))
    validated = _identities(validation)
    remaining = [question for question in candidates if question.identity not in validated]
    figures["train_questions_dropped_because_in_validation"] = float(len(candidates) - len(remaining))
    sizes = {"train": remaining, "validation": validation, "test": test}
    counts = {f"{split}_questions": float(len(questions)) for split, questions in sizes.items()}
    return Splits(remaining, validation, list(test), counts | figures)


def hold_out(rows: Sequence[T], count: int, seed: int = 0) -> tuple[list[T], list[T]]:
    """Return the remaining rows, and ``count`` rows drawn by ``seed``, both in their original order.

    >>> kept, drawn = hold_out(range(5), 2)
    >>> sorted([*kept, *drawn]), len(drawn)
    ([0, 1, 2, 3, 4], 2)

    Raises:
        CorpusError: no row would remain.
    """
    if count and count >= len(rows):
        raise CorpusError(
            f"download.validation_questions {count} leaves none of {len(rows)} training questions; lower it, or widen "
            "the training questions"
        )
    picks = set(random.Random(f"{seed}/validation").sample(range(len(rows)), count))
    return [row for i, row in enumerate(rows) if i not in picks], [row for i, row in enumerate(rows) if i in picks]


def rows_to_read(params: DrawnParams) -> int:
    """Return how many training questions to read, including the validation questions drawn from them; 0: all.

    >>> rows_to_read(DrawnParams(train_questions=800, validation_questions=200))
    1000
    """
    return params.train_questions and params.train_questions + params.validation_questions


def _identities(questions: Sequence[Question]) -> set[tuple[str, ...]]:
    return {question.identity for question in questions}
