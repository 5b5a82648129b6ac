"""Where a run's files lie: as the caller of a builder says, or as in every project (:meth:`Places.of_project`)."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """The folders that builders read: those of stages, and those that remember something for all stages.

    Args:
        corpus: passages. vectors: their vectors. index: what is searched. tables: what other packages compute once per
            corpus.
        generator: the model that stage generator made. completions: what servers and local models wrote. searches: what
            sources of the web answered.
    """

    corpus: Path
    vectors: Path
    index: Path
    tables: Path
    generator: Path
    completions: Path
    searches: Path

    @classmethod
    def of_project(cls, root: Path) -> "Places":
        """Return the places of a project that lies in ``root``; tasks/paths.py names the others."""
        data, work = root / "data", root / "work"
        return cls(
            corpus=data / "corpus",
            vectors=data / "vectors",
            index=data / "index",
            tables=work / "tables",
            generator=root / "models" / "generator",
            completions=work / "completions",
            searches=work / "searches",
        )
