"""The promotion gate as a person reads it: named conditions, a table for the terminal, a page for the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill

from harr.report.html import render


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that must hold before a candidate becomes champion: its state and the requirement."""

    name: str
    found: str
    needed: str
    passed: bool


def failures(conditions: Sequence[Condition]) -> str:
    """Return the conditions that do not hold, in one line; empty where all do.

    >>> failures([Condition("questions", "32", "at least 100", False), Condition("index", "a1", "a1", True)])
    'questions: found 32, needed at least 100'
    """
    return "; ".join(f"{c.name}: found {c.found}, needed {c.needed}" for c in conditions if not c.passed)


def table(conditions: Sequence[Condition], width: int) -> str:
    """Return the conditions as plain text of at most ``width`` columns, each with what was found and needed.

    >>> print(table([Condition("questions", "32", "at least 100", False)], 20))
    NO   questions: 32,
         needed at least
         100
    """
    lines = [f"{'yes' if c.passed else 'NO':<3}  {c.name}: {c.found}, needed {c.needed}" for c in conditions]
    return "\n".join(fill(line, width, subsequent_indent=" " * 5, break_on_hyphens=False) for line in lines)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate found about a candidate.

    Args:
        name: name of the registered model.
        version: number of the candidate.
        against: the version or arm it was compared with, in words.
        conditions: all of them, also those that hold.
        gains: paired gains per metric, as from ``evaluate.contrast``.
        facts: further names and values, such as fingerprints.
        level: of the intervals, in per cent.
    """

    name: str
    version: str
    against: str
    conditions: tuple[Condition, ...]
    gains: Mapping[str, Mapping[str, float]]
    facts: Mapping[str, str]
    level: str = "95"

    @property
    def refusal(self) -> str:
        """Why not, in one line; empty where the candidate may become champion."""
        missed = failures(self.conditions)
        return f"version {self.version} of {self.name} against {self.against}: {missed}" if missed else ""

    @property
    def page(self) -> str:
        """The verdict as one HTML page; every text is escaped and nothing is loaded from elsewhere."""
        from harr.evaluate.tables import label, with_interval

        rows = [
            (label(name), with_interval(name, gain, "gain"), int(gain["n"]), "up" if gain["low"] > 0 else "level")
            for name, gain in self.gains.items()
        ]
        return render(
            "promotion.html.j2",
            conditions=self.conditions,
            passed=not self.refusal,
            model=self.name,
            version=self.version,
            against=self.against,
            gains=rows,
            facts=self.facts,
            level=self.level,
        )
