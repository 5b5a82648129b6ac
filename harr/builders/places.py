"""Where a run's files are: given by the caller of a builder, or as in every project (:meth:`Places.of_project`)."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """The folders that builders read: stage outputs, and caches shared by all stages.

    Args:
        corpus: passages. vectors: their vectors. index: what is searched. tables: what other packages compute once per
            corpus.
        generator: stage generator's model. completions: what servers and local models wrote. searches: what web
            sources answered.
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
        """Return the places of the project in ``root``; tasks/paths.py names the others."""
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
