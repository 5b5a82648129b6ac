"""What a model was trained on, and how much of the corpus changed since: enough to train again, or not.

Training is a decision: ten new documents do not teach a retriever anew. Stages filter, train and arms depend on what
is noted here, not on corpus, vectors and index themselves, so that they run again where the note changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.corpus.passages import Passages, short_hash
from harr.io.files import draft, read_manifest, write_json

REMEDY = "dvc repro -f -s index"


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between the corpus of today and the one that was trained on.

    Attributes:
        passages: how many there were. added, removed, changed: passages of a new id, of one that is gone, and of one
            whose text is another.
        questions: new or changed questions of training and validation; one that is gone does not count.
        made: whether vectors or index were made in another way (encoder, number format, kind).
    """

    passages: int
    added: int
    removed: int
    changed: int
    questions: int
    made: bool

    @property
    def share(self) -> float:
        """Return the share of the passages that changed.

        >>> Changes(200, 10, 5, 5, 0, False).share
        0.1
        """
        return (self.added + self.removed + self.changed) / max(self.passages, 1)

    def enough(self, share: float) -> bool:
        """Return whether training begins again: more passages changed than this share, or what teaches did."""
        return self.made or self.questions > 0 or self.share > share


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """A corpus with its questions, as far as it must be known to say what changed.

    Attributes:
        told: its identity as ``corpus``, how many ``passages``, and how vectors and index were ``made``.
        marks: of ids, ascending, and of what is said under each, (2, N).
        questions: marks of the questions that train and validate.
    """

    told: Mapping[str, Any]
    marks: NDArray[np.int64]
    questions: NDArray[np.int64]

    @classmethod
    def of(cls, passages: Passages, questions: Sequence[Path], made: Mapping[str, Any]) -> "TrainedOn":
        """Read a corpus, and the lines of its question files."""
        marks = passages.marks()
        lines = [line for path in questions for line in path.read_bytes().splitlines()]
        told = {"corpus": passages.identity, "passages": len(passages), "made": dict(made)}
        return cls(told, marks, np.array([short_hash(line) for line in lines], dtype=np.int64))

    @classmethod
    def open(cls, folder: Path) -> "TrainedOn":
        """Read what :meth:`save` wrote.

        Raises:
            DamagedFile: a file is missing or changed.
        """
        told = read_manifest(folder, REMEDY, keys={"corpus": str, "passages": int, "made": dict})
        return cls(told, *(np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("marks", "questions")))

    def save(self, folder: Path, work: Path) -> None:
        """Write it down, whole or not at all."""
        with draft(work, folder) as unfinished:
            np.save(unfinished / "marks.npy", self.marks, allow_pickle=False)
            np.save(unfinished / "questions.npy", self.questions, allow_pickle=False)
            write_json(unfinished / "manifest.json", {"identity": self.told["corpus"], **self.told})

    def since(self, before: "TrainedOn") -> Changes:
        """Return what changed between ``before`` and this."""
        (ids, says), (ids_before, says_before) = self.marks, before.marks
        _, here, there = np.intersect1d(ids, ids_before, return_indices=True)
        return Changes(
            passages=len(ids_before),
            added=len(ids) - len(here),
            removed=len(ids_before) - len(there),
            changed=int((says[here] != says_before[there]).sum()),
            questions=len(np.setdiff1d(self.questions, before.questions)),
            made=self.told["made"] != before.told["made"],
        )
