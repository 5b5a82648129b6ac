"""Record the corpus that a model was trained on, and measure how much it has changed since.

Training is a decision: ten new documents need no new retriever. Stages filter, train and arms depend on this record,
not on corpus, vectors and index themselves, so they run again only if the record changes.
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
    """The differences between today's corpus and the training corpus.

    Attributes:
        passages: number of passages before. added, removed, changed: numbers of passages with a new id, a missing id,
            and another text.
        questions: new or changed questions of training and validation; removed ones do not count.
        made: whether vectors or index were built differently (encoder, number format, kind).
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

    def requires_training(self, share: float) -> bool:
        """Return whether to train again: more than this share of passages changed, or questions or index did."""
        return self.made or self.questions > 0 or self.share > share


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """Fingerprints of a corpus and its questions, by which changes are counted.

    Attributes:
        facts: its identity as ``corpus``, how many ``passages``, and how vectors and index were ``made``.
        marks: hashes of ids, ascending, and of their passages, (2, N).
        questions: hashes of the training and validation questions.
    """

    facts: Mapping[str, Any]
    marks: NDArray[np.int64]
    questions: NDArray[np.int64]

    @classmethod
    def of(cls, passages: Passages, questions: Sequence[Path], made: Mapping[str, Any]) -> "TrainedOn":
        """Fingerprint a corpus and the lines of its question files."""
        marks = passages.marks()
        lines = [line for path in questions for line in path.read_bytes().splitlines()]
        facts = {"corpus": passages.identity, "passages": len(passages), "made": dict(made)}
        return cls(facts, marks, np.array([short_hash(line) for line in lines], dtype=np.int64))

    @classmethod
    def open(cls, folder: Path) -> "TrainedOn":
        """Read what :meth:`save` wrote.

        Raises:
            DamagedFile: a file is missing or changed.
        """
        facts = read_manifest(folder, REMEDY, keys={"corpus": str, "passages": int, "made": dict})
        return cls(facts, *(np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("marks", "questions")))

    def save(self, folder: Path, work: Path) -> None:
        """Write the record atomically."""
        with draft(work, folder) as unfinished:
            np.save(unfinished / "marks.npy", self.marks, allow_pickle=False)
            np.save(unfinished / "questions.npy", self.questions, allow_pickle=False)
            write_json(unfinished / "manifest.json", {"identity": self.facts["corpus"], **self.facts})

    def changes_since(self, before: "TrainedOn") -> Changes:
        """Return the changes from ``before`` to this record."""
        (ids, says), (ids_before, says_before) = self.marks, before.marks
        _, places, places_before = np.intersect1d(ids, ids_before, return_indices=True)
        return Changes(
            passages=len(ids_before),
            added=len(ids) - len(places),
            removed=len(ids_before) - len(places_before),
            changed=int((says[places] != says_before[places_before]).sum()),
            questions=len(np.setdiff1d(self.questions, before.questions)),
            made=self.facts["made"] != before.facts["made"],
        )
